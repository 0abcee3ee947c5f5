"""More of the manifest: parts of the envelope, every attack of section 12 by its commit, checklists of section 14.

Read together with `requirements.py`; a gap here is a boundary: another room's subject, or nothing that we do.
"""

from tests.aip.requirements import (
    AGREED,
    ATTACK,
    CORE,
    CREDENTIAL,
    GALAXY,
    JSON,
    LEASES,
    NETWORK,
    PROCESS,
    REPLAY,
    RESUME,
    SOCKET,
    Requirement,
)

HUB, TOOLS, SAFETY = "tests/hub/", "tests/tools/", "tests/safety/"
SAME_BYTES = JSON + "test_every_recorded_frame_of_upstream_is_written_back_byte_for_byte"
ALL_FIELDS = JSON + "test_only_type_and_status_are_required_and_everything_is_written"


def _row(name: str, source: str, rule: str, *tests: str, gap: str = "") -> Requirement:
    return Requirement(f"AIP-{name}", source, rule, tests, gap)


REQUIREMENTS = (
    # The parts of the envelope
    _row("2.1", "2.1", "A client's message has its fourteen fields in order.", SAME_BYTES, ALL_FIELDS),
    _row("2.2", "2.2", "A server's message has its fourteen fields in order.", SAME_BYTES, ALL_FIELDS),
    _row("2.3", "2.3", "A Command names a tool, its kind and a call_id.", SAME_BYTES),
    _row(
        "2.4",
        "2.4",
        "A Result has a status and any JSON value, and echoes the call_id.",
        SAME_BYTES,
        JSON + "test_falsy_results_stay_what_they_are",
    ),
    _row(
        "2.5",
        "2.5",
        "A listed tool carries the four required keys.",
        PROCESS + "test_list_tools_is_answered_under_both_tool_types",
    ),
    _row(
        "2.6",
        "2.6",
        "Value types of Windows' tools.",
        gap="Payloads of tools; they belong to the rooms that see screens.",
    ),
    _row(
        "2.7",
        "2.7",
        "Upstream's declared binary frames are not sent; a peer that sends one is told so.",
        ATTACK + "test_frame_that_is_no_message_is_answered_shortly_and_the_connection_kept",
    ),
    # The HTTP API
    _row(
        "8-keys",
        "8",
        "Every route wants the key; dispatch refuses in upstream's words.",
        HUB + "test_app.py::test_without_the_key_nothing_is_answered",
        HUB + "test_app.py::test_upstreams_dispatch_refuses_in_upstreams_words",
    ),
    # Attacks, one row for each row of the table
    _row(
        "12-2368a5fc",
        "12: 2368a5fc 58e4284b",
        "Nobody is let in without the key, by any route, and no text makes the compare fail.",
        HUB + "test_app.py::test_without_the_key_nothing_is_answered",
        HUB + "test_app.py::test_a_handshake_without_the_key_is_answered_403",
        HUB + "test_guard.py::test_only_the_right_key_is_right_and_no_text_breaks_the_compare",
        HUB + "test_serve.py::test_a_hub_on_one_address_answers_to_that_name_alone",
        SOCKET + "test_wrong_token_is_refused_before_the_handshake",
    ),
    _row(
        "12-ffbc5f75",
        "12: ffbc5f75",
        "Replies go to the connection that asked.",
        ATTACK + "test_replies_go_to_the_connection_that_asked_whatever_connects_in_between",
    ),
    _row(
        "12-fce110d1",
        "12: fce110d1",
        "An end that another device or server tells ends nothing.",
        GALAXY + "test_registration_information_and_task_are_sent_as_recorded",
        ATTACK + "test_result_of_another_device_is_dropped",
        CORE + "test_answers_never_cross_between_two_devices",
    ),
    _row(
        "12-bdd46aab",
        "12: bdd46aab",
        "A victim's session can be neither used nor replayed.",
        ATTACK + "test_foreign_session_id_gets_a_session_of_its_own_and_the_owner_gets_through",
        ATTACK + "test_finished_session_cannot_be_replayed",
    ),
    _row(
        "12-2558da4e",
        "12: 2558da4e",
        "What a device told about itself is read only by whom it concerns.",
        ATTACK + "test_device_may_not_read_device_information",
        ATTACK + "test_scoped_constellation_may_not_use_or_read_another_device",
        ATTACK + "test_constellation_that_names_no_device_is_refused",
    ),
    _row(
        "12-e380d5ae",
        "12: e380d5ae e0d4bbd1 59ba6baf",
        "A shell tool interprets nothing, and an MCP endpoint wants a key.",
        TOOLS + "test_shell.py::test_nothing_is_interpreted",
        TOOLS + "test_files.py::test_no_tool_leaves_the_workspace",
        TOOLS + "test_mcp_server.py::test_request_without_the_key_or_from_another_site_is_refused",
    ),
    _row(
        "12-2362e2bd",
        "12: 2362e2bd b87a5872",
        "Interpreters behind a list of programs.",
        gap="No list of programs: each is judged by its risk, and asked about.",
    ),
    _row("12-60484611", "12: 60484611", "Chaining in PowerShell.", gap="No tool of ours runs a shell's language."),
    _row(
        "12-fce6e6bd",
        "12: fce6e6bd",
        "Page fetching towards private addresses.",
        gap="No tool of ours fetches pages yet.",
    ),
    _row(
        "12-1fb3669b",
        "12: 1fb3669b",
        "The hub dials only what its operator wrote into a file, never an address from the API.",
        GALAXY + "test_every_unusable_entry_is_named_and_no_secret_is_shown",
        HUB + "test_devices.py::test_the_routes_are_in_openapi",
    ),
    _row(
        "12-3851c5d4",
        "12: 3851c5d4",
        "A page under a rebound name reaches nothing, on any listener.",
        HUB + "test_app.py::test_a_foreign_host_or_origin_is_refused_even_with_the_key",
        HUB + "test_guard.py::test_other_names_are_not",
        TOOLS + "test_mcp_server.py::test_request_without_the_key_or_from_another_site_is_refused",
    ),
    _row("12-9d8349c2", "12: 9d8349c2", "Entities in a learner's XML.", gap="Nothing here reads XML of others."),
    _row(
        "12-3fdce0d5",
        "12: 3fdce0d5",
        "A page loads nothing from elsewhere.",
        HUB + "test_app.py::test_the_page_needs_no_key_holds_none_and_loads_nothing_from_elsewhere",
    ),
    # The checklists
    _row(
        "14-server",
        "14: server",
        "Upstream's clients join us as they would join upstream.",
        REPLAY,
        SOCKET + "test_minimal_upstream_device_is_accepted_and_spoken_to_in_upstreams_words",
    ),
    _row(
        "14-unrated",
        "14: server",
        "The tools of upstream's devices, which rate none, are carried out when a person says so.",
        "tests/session/test_profiles.py::test_a_tool_that_nobody_rated_may_act_anywhere_so_it_is_asked_about",
    ),
    _row(
        "D34-odd",
        "D34",
        "Nothing that a device says of its tools can break whoever reads the list.",
        "tests/fleet/test_toolbox.py::test_a_tool_whose_schema_is_none_is_left_out",
        "tests/fleet/test_toolbox.py::test_a_tool_with_an_unusable_name_is_left_out",
        "tests/fleet/test_toolbox.py::test_a_list_has_an_end",
    ),
    _row(
        "14-device",
        "14: device",
        "Our device joins an upstream server as upstream's would.",
        PROCESS + "test_registration_is_sent_as_recorded_and_our_announcement_rides_in_the_metadata",
        PROCESS + "test_commands_are_answered_as_recorded",
        PROCESS + "test_device_registers_again_after_the_server_stopped",
    ),
    _row(
        "14-constellation",
        "14: constellation",
        "We drive devices behind upstream servers: by a file, as whole tasks, told why one is not connected.",
        GALAXY + "test_registration_information_and_task_are_sent_as_recorded",
        GALAXY + "test_why_it_is_not_connected_is_known_until_it_is",
        GALAXY + "test_ping_asks_the_server_about_the_device",
        GALAXY + "test_outposts_are_forgotten_in_their_list_only",
        GALAXY + "test_token_of_an_outpost_comes_from_the_environment",
        "tests/session/test_delegating.py::test_a_task_that_was_sent_before_a_restart_is_put_to_a_person_and_not_sent_again",
        "tests/cli/test_outposts.py::test_a_device_behind_an_upstream_server_is_listed_and_takes_a_task",
    ),
    # Ours
    _row(
        "14-tools",
        "14",
        "A device that names the digest of a list of tools is not asked for it when the hub has heard it.",
        SOCKET + "test_a_device_is_asked_for_its_tools_unless_another_has_listed_the_same",
        SOCKET + "test_a_device_that_resumes_with_other_tools_takes_work_at_once_and_is_asked_again",
        SOCKET + "test_our_devices_say_what_they_would_list",
    ),
    _row(
        "14-network",
        "14",
        "Whatever a network does to one frame, at any state, runs end as without it and nothing is done twice.",
        NETWORK + "test_a_run_without_faults",
        NETWORK + "test_a_run_ends_as_without_faults_and_does_nothing_twice",
        NETWORK + "test_a_task_of_another_hub_ends_as_without_faults_and_is_done_once",
        NETWORK + "test_a_process_cut_off_behind_a_silent_network_stops_before_another_begins",
        RESUME + "test_call_cancelled_while_its_device_is_away_is_stopped_when_it_is_back",
        AGREED + "test_real_link_cut_after_any_number_of_bytes_loses_and_repeats_nothing",
    ),
    _row(
        "14-restart",
        "14",
        "A restarted hub keeps a lost process's place for as long as that was told it may act.",
        LEASES + "test_a_restarted_hub_with_a_shorter_lease_keeps_what_the_first_one_promised",
        LEASES + "test_a_device_that_may_still_act_is_forgotten_last",
    ),
    _row(
        "14-certificates",
        "14",
        "A client certificate's name is the id that may register, beside the token.",
        HUB + "test_certificates.py::test_a_device_is_who_its_certificate_says",
        HUB + "test_certificates.py::test_a_token_needs_the_certificate_beside_it",
        HUB + "test_certificates.py::test_without_one_a_device_comes_only_where_they_are_optional",
        HUB + "test_certificates.py::test_one_from_a_stranger_ends_the_handshake",
    ),
    _row(
        "14-revoked",
        "14",
        "Who was revoked is put out, also while the handshake is answered.",
        HUB + "test_devices.py::test_a_revoked_device_is_put_out_and_stays_out",
        HUB + "test_devices.py::test_a_device_revoked_while_its_handshake_is_answered_is_not_served",
        ATTACK + "test_newcomer_that_is_put_out_during_the_probe_is_not_taken_in",
        CREDENTIAL + "test_new_credential_replaces_the_old_and_revoking_takes_it_away",
    ),
)
