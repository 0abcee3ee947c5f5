"""The code examples of seed 4, run as they stand there; only the import paths are ours."""

from starloom.constellation.constellation import TaskConstellation
from starloom.constellation.editor import ConstellationEditor
from starloom.constellation.enums import ConstellationState, DependencyType, DeviceType, TaskPriority
from starloom.constellation.line import TaskStarLine
from starloom.constellation.star import TaskStar


def test_a_three_task_constellation_prints_what_the_seed_prints(capsys):
    star_ocr = TaskStar(
        task_id="t_ocr",
        name="ocr_invoices",
        description="用 OCR 抽取 200 张发票图片的金额",
        target_device_id="mac-mini-01",
        device_type=DeviceType.MACOS,
        priority=TaskPriority.HIGH,
        timeout=300,
        retry_count=2,
        task_data={"image_dir": "/Users/me/invoices/"},
        expected_output_type="json",
    )
    star_excel = TaskStar(
        task_id="t_excel",
        name="fill_excel",
        description="把 OCR 结果填到 Excel 模板",
        target_device_id="win-pc-01",
        device_type=DeviceType.WINDOWS,
        priority=TaskPriority.MEDIUM,
        task_data={"template": "monthly_report.xlsx"},
        expected_output_type="xlsx",
    )
    star_upload = TaskStar(
        task_id="t_upload",
        name="upload_onedrive",
        description="上传 Excel 到 OneDrive 指定目录",
        target_device_id="api",
        device_type=DeviceType.API,
        priority=TaskPriority.LOW,
        expected_output_type="url",
    )
    constellation = TaskConstellation(name="invoice_processing")
    print(f"State: {constellation.state}")
    constellation.add_task(star_ocr)
    constellation.add_task(star_excel)
    constellation.add_task(star_upload)
    constellation.add_dependency(
        TaskStarLine(
            from_task_id="t_ocr",
            to_task_id="t_excel",
            dependency_type=DependencyType.SUCCESS_ONLY,
            condition_description="OCR 输出必须是有效 JSON",
        )
    )
    constellation.add_dependency(
        TaskStarLine(from_task_id="t_excel", to_task_id="t_upload", dependency_type=DependencyType.UNCONDITIONAL)
    )
    print(f"State: {constellation.state}")
    print(f"Tasks: {constellation.task_count}, Deps: {constellation.dependency_count}")
    ready = constellation.get_ready_tasks()
    print(f"Ready: {[t.name for t in ready]}")
    assert capsys.readouterr().out.splitlines() == [
        "State: ConstellationState.CREATED",
        "State: ConstellationState.READY",
        "Tasks: 3, Deps: 2",
        "Ready: ['ocr_invoices']",
    ]
    assert constellation.state is ConstellationState.READY


def test_the_editor_undoes_redoes_and_tells_its_observers(capsys):
    editor = ConstellationEditor(enable_history=True, max_history_size=100)
    task1 = TaskStar(task_id="t1", name="step1", description="第一步")
    editor.add_task(task1)
    print(f"After add t1: tasks = {len(editor.constellation.tasks)}")
    task2 = TaskStar(task_id="t2", name="step2", description="第二步")
    editor.add_task(task2)
    print(f"After add t2: tasks = {len(editor.constellation.tasks)}")
    editor.invoker.undo()
    print(f"After undo: tasks = {len(editor.constellation.tasks)}")
    editor.invoker.redo()
    print(f"After redo: tasks = {len(editor.constellation.tasks)}")

    def on_change(editor, command, result):
        print(f"📢 Event: {command}, tasks now: {len(editor.constellation.tasks)}")

    editor.add_observer(on_change)
    editor.add_task(TaskStar(task_id="t3", name="step3", description="第三步"))
    assert capsys.readouterr().out.splitlines() == [
        "After add t1: tasks = 1",
        "After add t2: tasks = 2",
        "After undo: tasks = 1",
        "After redo: tasks = 2",
        "📢 Event: add_task, tasks now: 3",
    ]
