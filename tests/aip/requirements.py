"""What the wire must do: each rule with its source in the wire specification and the tests that show it.

`tests/aip/test_requirements.py` checks both directions: every named test exists, every test of the wire's conformance
and attack files shows some rule, and no section or defect is forgotten. What is not built is a gap with its reason.
"""

from dataclasses import dataclass

AIP, FLEET, DEVICE = "tests/aip/", "tests/fleet/", "tests/device/"
SERVER = FLEET + "test_conformance_server.py::"
GALAXY = FLEET + "test_conformance_constellation.py::"
PROCESS = DEVICE + "test_process.py::"
ATTACK = FLEET + "test_attacks.py::"
CORE = AIP + "test_protocol.py::"
JSON = AIP + "test_messages.py::"
SOCKET = FLEET + "test_sockets.py::"
CALL = FLEET + "test_fleet.py::"
AGREED = FLEET + "test_extension.py::"
RESUME = FLEET + "test_resume.py::"
CREDENTIAL = FLEET + "test_credentials.py::"
ENDS = FLEET + "test_task_ends.py::"
LEASES = FLEET + "test_leases.py::"
NETWORK = FLEET + "test_network.py::"
HUB = "tests/hub/"
REPLAY = SERVER + "test_every_recorded_flow_against_our_server"


@dataclass(frozen=True)
class Requirement:
    """One rule. `gap` says why no test shows it."""

    id: str
    source: str
    rule: str
    tests: tuple[str, ...] = ()
    gap: str = ""


REQUIREMENTS = (
    # Transport and authentication
    Requirement(
        "AIP-1-1",
        "1",
        "A wrong, missing, empty, long or non-ASCII token is answered 403 before the handshake.",
        (SOCKET + "test_wrong_token_is_refused_before_the_handshake",),
    ),
    Requirement(
        "AIP-1-2",
        "1",
        "The token may stand in the query; our clients put it there.",
        (
            SOCKET + "test_token_in_the_url_is_enough",
            SOCKET + "test_our_device_joins_over_a_real_websocket",
            AIP + "test_websocket.py::test_token_goes_into_the_address_unless_one_is_there",
        ),
    ),
    Requirement(
        "AIP-1-3",
        "1",
        "Every message is one text frame; larger ones than allowed close with 1009.",
        (ATTACK + "test_big_frame_closes_the_connection_only",),
    ),
    Requirement(
        "AIP-1-4",
        "1",
        "An address where nobody answers is a clear error.",
        (SOCKET + "test_nobody_there_is_unreachable",),
    ),
    Requirement(
        "AIP-1-5",
        "1",
        "wss:// checks the server's certificate, and shows ours where a server asks for one.",
        (
            AIP + "test_tls.py::test_both_ends_show_a_trusted_certificate",
            AIP + "test_tls.py::test_unknown_server_is_not_spoken_to",
        ),
    ),
    # Envelope
    Requirement(
        "AIP-2-1",
        "2",
        "Frames are upstream's bytes: all fields, fixed order, nulls, compact.",
        (
            JSON + "test_every_recorded_frame_of_upstream_is_written_back_byte_for_byte",
            SOCKET + "test_minimal_upstream_device_is_accepted_and_spoken_to_in_upstreams_words",
            JSON + "test_messages_cannot_be_changed",
        ),
    ),
    Requirement(
        "AIP-2-2",
        "2",
        "Only type and status are required; unknown fields are ignored; closed sets and types are enforced.",
        (
            JSON + "test_only_type_and_status_are_required_and_everything_is_written",
            JSON + "test_unknown_fields_are_ignored",
            JSON + "test_what_is_no_message_is_refused_with_a_short_code",
            JSON + "test_what_upstream_can_send_is_not_too_deep",
            JSON + "test_many_brackets_are_not_deep",
        ),
    ),
    # Ids
    Requirement(
        "AIP-3-1",
        "3",
        "Results count only for the COMMAND and session they name, once; ids of two connections never meet.",
        (
            ATTACK + "test_doubled_late_short_and_long_answers",
            ATTACK + "test_result_of_another_device_is_dropped",
            CORE + "test_answers_never_cross_between_two_devices",
            CORE + "test_command_and_answer_find_each_other",
        ),
    ),
    # Matrix
    Requirement("AIP-4-1", "4", "The server reacts to every message type as recorded.", (REPLAY,)),
    Requirement(
        "AIP-4-2",
        "4",
        "The device answers COMMAND and TASK and nothing else.",
        (PROCESS + "test_task_end_heartbeat_error_and_nonsense_are_not_answered",),
    ),
    Requirement(
        "AIP-4-3",
        "4",
        "The constellation client is not misled by frames about nothing that waits.",
        (GALAXY + "test_registration_information_and_task_are_sent_as_recorded",),
    ),
    # Registration, heartbeat, information
    Requirement(
        "AIP-5-1",
        "5.1",
        "A device registers as recorded, with its probed system information.",
        (
            PROCESS + "test_registration_is_sent_as_recorded_and_our_announcement_rides_in_the_metadata",
            PROCESS + "test_identity_has_the_recorded_fields_and_probed_features",
            DEVICE + "test_display.py::test_a_server_that_takes_us_in_tells_its_size",
            DEVICE + "test_display.py::test_a_server_that_does_not_take_us_in_is_no_screen",
            DEVICE + "test_applications.py::test_visible_entries_whose_program_is_there_are_found",
            FLEET + "test_records.py::test_what_a_device_tells_of_its_abilities_is_read_with_care",
            FLEET + "test_records.py::test_limits_are_read_with_care",
            HUB + "test_devices.py::test_devices_are_found_by_what_is_installed_on_them",
        ),
    ),
    Requirement(
        "AIP-5-2",
        "5.2",
        "A constellation client registers as recorded; its target must be connected.",
        (GALAXY + "test_registration_information_and_task_are_sent_as_recorded", REPLAY),
    ),
    Requirement(
        "AIP-5-3",
        "5.3",
        "Heartbeats are sent as recorded and answered.",
        (
            PROCESS + "test_heartbeat_is_sent_as_recorded",
            GALAXY + "test_heartbeat_names_the_right_role",
            CORE + "test_agreed_heartbeat_shortens_the_silence",
        ),
    ),
    Requirement(
        "AIP-5-4",
        "5.4",
        "A refused client sees why and dials anew.",
        (
            GALAXY + "test_refused_registration_shows_as_failed_and_is_tried_again",
            RESUME + "test_second_process_under_a_living_id_is_refused_and_the_first_works_on",
        ),
    ),
    Requirement(
        "AIP-5-5",
        "5.5",
        "Device information comes from the registration, only to whom it may concern.",
        (REPLAY, ATTACK + "test_device_may_not_read_device_information"),
    ),
    # Tasks
    Requirement(
        "AIP-6-1",
        "6.1",
        "A pushed task comes back as the device's own.",
        (
            PROCESS + "test_pushed_task_is_asked_for_as_recorded",
            AGREED + "test_pushed_task_comes_back_under_the_promised_session_and_its_end_is_kept",
        ),
    ),
    Requirement(
        "AIP-6-2",
        "6.2",
        "A constellation's TASK is acknowledged, performed and ended as recorded.",
        (REPLAY, GALAXY + "test_failed_task_is_told_with_its_error"),
    ),
    Requirement(
        "AIP-6-3",
        "6.3",
        "Every COMMAND is answered: one Result each, in order; a failure skips the rest; falsy results stay.",
        (
            PROCESS + "test_commands_are_answered_as_recorded",
            CALL + "test_batch_stops_at_its_first_failure_and_skips_the_rest",
            CALL + "test_call_returns_one_result_per_command_in_order",
            CALL + "test_empty_batch_has_no_results",
        ),
    ),
    Requirement(
        "AIP-6-4",
        "6.4",
        "TASK_END goes to the requester and then to the device, with one response_id.",
        (REPLAY,),
    ),
    Requirement(
        "AIP-6-5",
        "6.5",
        "Tasks end when their device or their requester leaves.",
        (ATTACK + "test_task_ends_when_its_device_leaves_and_when_its_requester_leaves",),
    ),
    Requirement(
        "AIP-6-6",
        "6.6",
        "One command at a time per device, the rest waits in order.",
        (AGREED + "test_one_command_at_a_time_unless_the_device_takes_more",),
    ),
    # Tools
    Requirement(
        "AIP-7-1",
        "7",
        "list_tools is answered under both tool types with the recorded fields.",
        (PROCESS + "test_list_tools_is_answered_under_both_tool_types",),
    ),
    Requirement(
        "AIP-7-2",
        "7",
        "The fleet knows a device's tools after its registration.",
        (CALL + "test_device_is_idle_with_its_tools_after_registration",),
    ),
    Requirement(
        "AIP-8-1",
        "8",
        "The HTTP API of upstream's server.",
        tests=(
            HUB + "test_app.py::test_upstreams_dispatch_refuses_in_upstreams_words",
            HUB + "test_upstream.py::test_a_result_is_found_by_the_name_that_the_caller_gave",
            HUB + "test_upstream.py::test_the_newest_task_of_a_name_counts_and_one_without_a_name_has_its_own",
            HUB + "test_upstream.py::test_a_failed_task_is_done_and_says_why",
            HUB + "test_upstream.py::test_devices_and_constellation_clients_are_listed_together",
        ),
    ),
    Requirement(
        "AIP-9-1",
        "9",
        "A binary frame that nobody agreed on is answered with an ERROR and the connection kept.",
        (
            ATTACK + "test_frame_that_is_no_message_is_answered_shortly_and_the_connection_kept",
            HUB + "test_app.py::test_a_body_that_no_json_can_carry_is_refused_by_every_route",
            HUB + "test_app.py::test_a_refusal_does_not_repeat_what_was_sent",
        ),
    ),
    Requirement(
        "AIP-10-1",
        "10",
        "A device dials again for ever, with growing, capped and spread delays.",
        (
            PROCESS + "test_device_registers_again_after_the_server_stopped",
            PROCESS + "test_device_that_cannot_connect_tries_for_ever_and_says_so",
            PROCESS + "test_delays_double_are_capped_and_begin_anew_after_success",
            PROCESS + "test_device_gives_up_when_told_to",
        ),
    ),
    Requirement(
        "AIP-10-2",
        "10",
        "Every wait has an end: registration, silence, probe.",
        (
            CORE + "test_server_closes_a_connection_that_does_not_register",
            CORE + "test_server_closes_a_connection_that_falls_silent_and_any_frame_puts_that_off",
            CORE + "test_client_gives_up_when_its_registration_is_not_answered",
            CORE + "test_client_gives_up_when_the_server_falls_silent",
            CORE + "test_client_says_goodbye_only_to_a_server_that_refused_it",
        ),
    ),
    # Defects
    Requirement(
        "AIP-D1",
        "D1",
        "Ends of pushed tasks are kept and can be asked for without a lock.",
        (AGREED + "test_pushed_task_comes_back_under_the_promised_session_and_its_end_is_kept",),
    ),
    Requirement(
        "AIP-D2",
        "D2",
        "A bad or missing first frame is answered and the connection closed.",
        (
            ATTACK + "test_connection_without_a_first_frame_is_closed",
            ATTACK + "test_bad_first_frame_is_answered_and_the_connection_closed",
            ATTACK + "test_frames_of_an_unregistered_connection_are_refused_and_it_is_closed",
        ),
    ),
    Requirement("AIP-D3", "D3", "A binary frame makes no zombie.", (REPLAY,)),
    Requirement(
        "AIP-D4",
        "D4",
        "A constellation's heartbeat with a wrong client_type is answered; ours names the right one.",
        (
            ATTACK + "test_constellation_heartbeat_with_a_wrong_client_type_is_answered",
            GALAXY + "test_heartbeat_names_the_right_role",
        ),
    ),
    Requirement(
        "AIP-D5",
        "D5",
        "Our device answers unknown tools; our server does not wait for ever for one that does not answer.",
        (
            PROCESS + "test_unknown_tool_is_answered_where_upstreams_device_is_silent",
            CALL + "test_unknown_tool_and_wrong_kind_are_answered_with_failures",
            PROCESS + "test_more_commands_than_may_wait_are_answered_at_once",
            AGREED + "test_upstreams_device_that_never_answers_is_free_again_after_a_while",
        ),
    ),
    Requirement(
        "AIP-D6",
        "D6",
        "Cancelling stops the tool on our device first; an upstream device stays busy until its late answer.",
        (
            AGREED + "test_cancelled_call_stops_the_tool_on_the_device_before_it_returns",
            AGREED + "test_call_cancelled_before_its_turn_is_never_sent",
            AGREED + "test_upstreams_device_that_cannot_be_told_stays_busy_until_its_late_answer",
        ),
    ),
    Requirement(
        "AIP-D7",
        "D7",
        "An ERROR names session and request; our client ends the one request an unnamed ERROR can be about.",
        (
            ATTACK + "test_error_names_the_session_and_the_request",
            GALAXY + "test_uncorrelated_error_before_the_acknowledgement_refuses_the_task",
            CORE + "test_error_carries_code_and_id_where_agreed",
        ),
    ),
    Requirement(
        "AIP-D8",
        "D8",
        "A task given up on an upstream server closes its connection.",
        (GALAXY + "test_abandoned_task_closes_the_connection_which_is_all_that_stops_it",),
    ),
    Requirement(
        "AIP-D9",
        "D9",
        "A task that failed ends as failed.",
        (ATTACK + "test_task_ends_when_its_device_leaves_and_when_its_requester_leaves",),
    ),
    Requirement(
        "AIP-D10",
        "D10",
        "A half-open connection is taken over after a probe; a living one is not.",
        (
            ATTACK + "test_half_open_connection_is_taken_over_after_it_failed_the_probe",
            ATTACK + "test_second_registration_of_a_living_id_is_refused_and_the_first_untouched",
            ATTACK + "test_silent_client_that_cannot_be_probed_is_not_taken_over",
            ATTACK + "test_newcomer_that_leaves_during_the_probe_changes_nothing",
            RESUME + "test_new_process_takes_over_from_one_that_hangs_and_the_old_commands_are_lost",
            CORE + "test_probe_is_answered_by_anything_and_fails_by_silence",
            CORE + "test_upstreams_device_is_probed_with_an_empty_command",
            AGREED + "test_ping_tells_a_living_device_from_a_silent_one_and_from_none",
        ),
    ),
    Requirement(
        "AIP-D11",
        "D11",
        "A device never stays alive without trying.",
        (PROCESS + "test_device_that_cannot_connect_tries_for_ever_and_says_so",),
    ),
    Requirement(
        "AIP-D12",
        "D12",
        "A task that a device asked for itself ends with the device.",
        (REPLAY,),
    ),
    Requirement(
        "AIP-D13", "D13", "No secret is a tool parameter.", gap="A matter of the tools room: no tool takes one."
    ),
    Requirement(
        "AIP-D14",
        "D14",
        "Credentials are bound to id and role, hashed, compared in constant time, and can be revoked.",
        (
            ATTACK + "test_credential_is_bound_to_id_and_role",
            ATTACK + "test_dead_connection_is_not_taken_over_by_another_identity",
            CREDENTIAL + "test_credential_allows_its_own_id_and_role_only",
            CREDENTIAL + "test_wrong_tokens_allow_nothing_and_raise_nothing",
            CREDENTIAL + "test_changed_secret_allows_nothing",
            CREDENTIAL + "test_new_credential_replaces_the_old_and_revoking_takes_it_away",
            CREDENTIAL + "test_file_holds_no_secret_is_private_and_survives_a_restart",
            CREDENTIAL + "test_damaged_file_is_an_error_not_an_open_door",
            CREDENTIAL + "test_a_right_token_is_right_also_when_its_first_use_cannot_be_kept",
        ),
    ),
    Requirement(
        "AIP-D14-invite",
        "D14",
        "An invitation is short-lived, turns into one device's credential once, and cannot take a name.",
        (
            CREDENTIAL + "test_invitation_is_turned_into_a_credential_once",
            CREDENTIAL + "test_invitation_may_be_redeemed_again_while_its_credential_was_never_used",
            CREDENTIAL + "test_invitation_is_bound_to_a_name_when_it_says_so",
            CREDENTIAL + "test_invitation_cannot_take_a_name_that_has_a_credential",
            CREDENTIAL + "test_invitation_ends_with_its_time",
            CREDENTIAL + "test_invited_device_gets_its_own_credential_and_the_invitation_is_gone",
            CREDENTIAL + "test_upstreams_device_cannot_come_by_invitation",
        ),
    ),
    Requirement(
        "AIP-D15",
        "D15",
        "A scope holds for every operation; an unscoped constellation client needs a credential that says so.",
        (
            ATTACK + "test_scoped_constellation_may_not_use_or_read_another_device",
            ATTACK + "test_constellation_that_names_no_device_is_refused",
            ATTACK + "test_constellation_with_a_credential_of_its_own_may_be_unscoped",
        ),
    ),
    Requirement(
        "AIP-D16",
        "D16",
        "A session id belongs to its owner; the rightful owner always gets through; nothing can be replayed.",
        (
            ATTACK + "test_foreign_session_id_gets_a_session_of_its_own_and_the_owner_gets_through",
            ATTACK + "test_finished_session_cannot_be_replayed",
            ATTACK + "test_running_session_id_of_ones_own_is_refused",
        ),
    ),
    Requirement(
        "AIP-D17",
        "D17",
        "Frames of one connection are processed and answered in order.",
        (ATTACK + "test_replies_go_to_the_connection_that_asked_whatever_connects_in_between", REPLAY),
    ),
    Requirement(
        "AIP-D18",
        "D18",
        "Versions and capabilities are agreed on.",
        (
            CORE + "test_capabilities_are_what_both_named_and_unknown_ones_are_ignored",
            CORE + "test_confirmation_carries_our_announcement_only_to_who_announced",
            CORE + "test_unusable_announcement_counts_as_none",
            CORE + "test_unusable_notes_count_as_none",
        ),
    ),
    Requirement(
        "AIP-D19",
        "D19",
        "A session is resumed by number after a drop at any frame or byte; nothing is lost or done twice.",
        (
            RESUME + "test_one_break_at_any_frame_loses_and_repeats_nothing",
            RESUME + "test_many_breaks_and_repeated_frames_lose_and_repeat_nothing",
            RESUME + "test_frames_that_overtake_each_other_lose_and_repeat_nothing",
            RESUME + "test_tool_goes_on_while_the_link_is_gone_and_answers_on_the_next",
            RESUME + "test_call_made_while_a_lost_device_is_awaited_waits_for_it",
            RESUME + "test_commands_of_a_device_that_stays_away_are_lost",
            AGREED + "test_real_link_cut_after_any_number_of_bytes_loses_and_repeats_nothing",
            CORE + "test_frames_lost_on_the_way_are_sent_again_after_resumption_and_processed_once",
            CORE + "test_what_the_other_end_says_it_has_processed_is_not_sent_again",
            CORE + "test_missing_frame_closes_the_connection_for_a_resumption",
            CORE + "test_long_one_sided_talk_is_acknowledged_on_the_way",
        ),
    ),
    Requirement(
        "AIP-D20",
        "D20",
        "An outpost is dialled again after every loss.",
        (GALAXY + "test_lost_connection_loses_the_task_and_is_dialled_again",),
    ),
    Requirement(
        "AIP-D21",
        "D21",
        "A lost device is disconnected, not idle; waiting calls are refused, not burnt.",
        (
            RESUME + "test_commands_of_a_device_that_stays_away_are_lost",
            CALL + "test_calls_of_an_unknown_or_offline_device_are_refused",
        ),
    ),
    Requirement(
        "AIP-D22",
        "D22",
        "A constellation learns that its device left: told by ours, asked of upstream's.",
        (
            GALAXY + "test_device_that_left_the_server_shows_as_disconnected_until_it_is_back",
            GALAXY + "test_our_client_uses_our_server_with_cancel_and_presence",
        ),
    ),
    Requirement(
        "AIP-D23",
        "D23",
        "Falsy results stay what they are; results are ordered by call_id.",
        (JSON + "test_falsy_results_stay_what_they_are", ATTACK + "test_doubled_late_short_and_long_answers"),
    ),
    Requirement(
        "AIP-D24",
        "D24",
        "Progress, and several commands in flight where the device takes them.",
        (
            AGREED + "test_progress_of_a_batch_is_told_to_its_call",
            AGREED + "test_device_that_takes_two_gets_two",
            CORE + "test_cancel_progress_and_settled_travel_as_notes",
        ),
    ),
    Requirement("AIP-D25", "D25", "Upstream's device cannot build its ERROR.", gap="Not ours: our device sends none."),
    Requirement(
        "AIP-D26",
        "D26",
        "The session id that a push returned is the session's.",
        (
            AGREED + "test_pushed_task_comes_back_under_the_promised_session_and_its_end_is_kept",
            AGREED + "test_upstreams_device_keeps_the_promised_session_too",
        ),
    ),
    Requirement("AIP-D27", "D27", "An unknown platform is refused.", (ATTACK + "test_unknown_platform_is_refused",)),
    Requirement(
        "AIP-D28",
        "D28",
        "The loop is never blocked by one connection: frames are taken in at a pace.",
        (
            AIP + "test_link.py::test_fast_sender_is_read_at_its_pace",
            FLEET + "test_extension.py::test_answers_that_the_hub_asked_for_are_free",
            AIP + "test_link.py::test_cancelling_while_the_connection_ends_is_not_forgotten",
        ),
    ),
    Requirement(
        "AIP-D29",
        "D29",
        "Clients, unregistered connections, sessions, frames and queues are limited.",
        (
            AGREED + "test_more_clients_than_allowed_are_refused",
            AGREED + "test_more_unregistered_connections_than_allowed_are_closed",
            ATTACK + "test_more_tasks_than_allowed_are_refused",
            CORE + "test_slow_reader_ends_the_connection_not_the_memory",
        ),
    ),
    Requirement(
        "AIP-D30",
        "D30",
        "Tokens stay out of messages and logs; any characters are compared without an error.",
        (
            AIP + "test_websocket.py::test_address_in_a_log_has_no_secret",
            SOCKET + "test_wrong_token_is_refused_before_the_handshake",
            AIP + "test_websocket.py::test_token_of_a_request",
            CREDENTIAL + "test_secrets_do_not_show_when_their_holders_are_written_to_a_log",
        ),
    ),
    Requirement(
        "AIP-D31",
        "D31",
        "Host and Origin are checked.",
        (
            HUB + "test_app.py::test_a_foreign_host_or_origin_is_refused_even_with_the_key",
            HUB + "test_guard.py::test_origins_are_absent_or_ours",
            HUB + "test_app.py::test_the_document_of_the_api_says_how_to_show_the_key_and_what_is_refused",
        ),
    ),
    Requirement(
        "AIP-D32",
        "D32",
        "ERROR texts are short and stable and hold nothing of the inside.",
        (ATTACK + "test_frame_that_is_no_message_is_answered_shortly_and_the_connection_kept",),
    ),
    Requirement(
        "AIP-D33", "D33", "A client's ERROR is not echoed.", (ATTACK + "test_error_of_a_client_is_not_echoed",)
    ),
    Requirement(
        "AIP-D34",
        "D34",
        "A device that does not list its tools takes work all the same.",
        (FLEET + "test_toolbox.py::test_failed_or_odd_listing_has_the_tools_that_make_sense",),
    ),
    Requirement(
        "AIP-D35",
        "D35",
        "Concurrent calls of one tool keep their arguments.",
        (AGREED + "test_device_that_takes_two_gets_two",),
    ),
    # Attacks
    Requirement(
        "AIP-12-1",
        "12: 723d557e",
        "Role spoof, identity spoof and registry overwrite are refused and the connection kept.",
        (
            ATTACK + "test_device_that_claims_to_be_a_constellation_is_refused_and_kept",
            ATTACK + "test_frame_in_another_clients_name_is_refused_and_kept",
            ATTACK + "test_id_is_free_again_after_its_client_left",
            ATTACK + "test_device_may_not_target_another_device",
            ATTACK + "test_second_register_and_a_clients_task_end_are_refused",
        ),
    ),
    Requirement(
        "AIP-12-2",
        "12: cc653bde",
        "Results for unknown sessions create nothing.",
        (ATTACK + "test_results_for_thousands_of_unknown_sessions_create_nothing",),
    ),
    Requirement(
        "AIP-12-3",
        "12: e1b376c7",
        "Task names are made safe.",
        (
            ATTACK + "test_task_name_is_made_safe",
            HUB + "test_upstream.py::test_a_name_that_could_be_a_path_is_refused_in_upstreams_words",
        ),
    ),
    Requirement(
        "AIP-12-4",
        "12: fd2597cc",
        "The task string on the wire is not changed.",
        (ATTACK + "test_task_text_is_handed_over_unchanged",),
    ),
    Requirement(
        "AIP-12-5",
        "12: extra cases",
        "Broken encoding, odd ids, a close during a COMMAND and two drivers of one device are withstood.",
        (
            ATTACK + "test_invalid_utf8_closes_the_connection_only",
            ATTACK + "test_unfit_client_id_is_refused",
            ATTACK + "test_close_during_a_command_loses_the_call",
            ATTACK + "test_two_constellations_may_drive_one_device",
            CORE + "test_no_frame_makes_a_core_raise_hang_or_grow",
        ),
    ),
    # Extension
    Requirement(
        "AIP-14-1",
        "14",
        "Nothing of the extension reaches a peer that did not announce it.",
        (
            CORE + "test_nothing_of_ours_is_said_to_a_peer_that_did_not_announce_itself",
            JSON + "test_extension_is_written_last_and_only_when_set",
        ),
    ),
    Requirement(
        "AIP-14-2",
        "14",
        "An attempt is carried out once, however often it is asked for.",
        (
            PROCESS + "test_attempt_is_carried_out_once_however_often_it_is_asked_for",
            PROCESS + "test_record_that_cannot_be_written_does_not_end_the_device",
            AGREED + "test_attempt_is_done_once_and_forgotten_when_its_result_is_stored",
            AGREED + "test_attempt_asked_for_again_while_it_runs_joins_the_running_one",
            AGREED + "test_repeated_call_id_is_carried_out_again_unless_it_is_an_attempt",
        ),
    ),
    Requirement(
        "AIP-14-files",
        "14",
        "Where agreed, what tools hand over as bytes travels as checked binary frames, and arrives whole or fails.",
        (
            AGREED + "test_blob_travels_as_binary_frames_and_is_handed_out_as_it_is_wanted",
            AGREED + "test_blob_is_its_data_url_where_binary_frames_are_not_agreed",
            AGREED + "test_image_lost_with_its_link_is_sent_again_on_the_next",
            AIP + "test_files.py::test_image_that_did_not_arrive_whole_fails_its_own_result_only",
            AIP + "test_files.py::test_image_leaves_the_text_and_comes_back_the_same",
        ),
    ),
    Requirement(
        "AIP-14-redelivery",
        "14",
        "The end of a task is kept for a constellation client that lost its link (D19).",
        (
            ENDS + "test_a_task_goes_on_while_its_requester_is_away_and_its_end_is_kept",
            ENDS + "test_an_end_that_was_lost_on_the_way_is_sent_again",
            ENDS + "test_a_requester_that_stays_away_loses_its_task",
            ENDS + "test_a_task_that_was_given_up_while_away_is_stopped_on_return",
            ENDS + "test_nobody_gets_the_end_of_anothers_task",
        ),
    ),
    Requirement(
        "AIP-14-leases",
        "14",
        "Two processes with one id on two sides of a split network never both act.",
        (
            LEASES + "test_nobody_else_gets_the_place_before_the_lease_is_over",
            LEASES + "test_a_process_that_is_cut_off_stops_before_another_can_begin",
            LEASES + "test_heartbeats_renew_the_lease",
            LEASES + "test_the_next_process_with_the_same_record_comes_in_at_once",
            LEASES + "test_a_device_that_was_sent_away_keeps_its_lease",
            LEASES + "test_a_restarted_hub_knows_who_may_act",
            LEASES + "test_a_command_that_comes_when_the_lease_is_over_is_not_begun",
        ),
    ),
    Requirement(
        "AIP-14-3",
        "14",
        "The device process loads no model, MCP or web-framework library.",
        (PROCESS + "test_device_process_loads_no_model_mcp_or_web_framework",),
    ),
    Requirement(
        "AIP-14-4",
        "14",
        "Devices behind an upstream server are taken from upstream's device list.",
        (GALAXY + "test_upstreams_device_list_is_read", GALAXY + "test_unusable_device_list_is_explained"),
    ),
)
