"""Tables on a terminal and in a pipe: whatever the width, every cell is there whole."""

import contextlib
import io
import re

import pytest

from fscil_bench.cli import main
from fscil_bench.cli.render import show_notes, show_table

SPREAD = "45.27 ± 0.08 (0.41)"
COLUMNS = ["method", "memory and privileges", "AvgAcc", "HMean", "NAcc", "mean AvgAcc", "draws"]
ROWS = [
    ["tukey-protonet+teen", "exemplars (5), total_classes", SPREAD, "1.00 ± 0.10 (0.20)", SPREAD, SPREAD, "100"],
    ["teen variant=paper (incomplete) (yours)", "none", SPREAD, SPREAD, SPREAD, "-12.50 ± 0.10 (0.20)", "7"],
]


class Terminal(io.StringIO):
    def isatty(self):
        return True


@pytest.fixture
def printed(monkeypatch):
    """What a call prints to a terminal of some width; `None`: to a pipe."""

    def call(show, columns=80):
        monkeypatch.setenv("COLUMNS", str(columns))
        monkeypatch.setenv("TERM", "xterm")
        out = Terminal() if columns else io.StringIO()
        with contextlib.redirect_stdout(out):
            show()
        return re.sub(r"\x1b\[[0-9;]*m", "", out.getvalue())

    return call


@pytest.mark.parametrize("width", [30, 40, 60, 80, 100, 200])
def test_no_cell_is_cut_whatever_the_width(printed, width):
    text = printed(lambda: show_table("a title", COLUMNS, ROWS, left=2), width)
    assert "…" not in text
    for row in ROWS:
        assert all(word in text for cell in row[:2] for word in cell.split())
        assert all(cell in text for cell in row[2:])  # numbers are not even folded
    assert all(word in text for column in COLUMNS for word in column.split())
    if width >= 60:  # room for the longest words and one number
        assert max(map(len, text.splitlines())) <= width
    else:
        assert "| 45.27 ± 0.08 (0.41) |" in text  # as in a pipe


def test_a_wide_terminal_gets_one_table_and_a_narrow_one_repeats_the_names(printed):
    def show():
        show_table("a title", COLUMNS, ROWS, left=2)

    assert printed(show, 200).count("tukey-protonet+teen") == 1
    assert printed(show, 80).count("tukey-protonet+teen") == 3


def test_a_p_value_stays_beside_its_difference(printed):
    columns = ["method", *(text for name in "abcd" for text in (f"difference {name}", "p"))]
    row = ["teen", *(text for i in range(4) for text in ("+1.00 (+0.50 to +1.50)", f"{i}e-16"))]
    text = printed(lambda: show_table("a title", columns, [row]), 70)
    lines = [line for line in text.splitlines() if line.startswith("teen")]
    assert len(lines) == 2
    assert all(line.endswith("e-16") and line.split()[1] == "+1.00" for line in lines)


def test_a_cell_is_shown_as_it_is(printed):
    text = printed(lambda: show_table("[b]", ["", "n"], [["[bold]x[/bold] :smile:", "1"]]))
    assert text.startswith("[b]\n")
    assert "[bold]x[/bold] :smile:" in text


def test_in_a_pipe_notes_are_a_list_and_titles_stand_alone(printed):
    def show():
        show_table("one", ["", "n"], [["a", "1"]])
        show_notes(["first", "second"])
        show_notes([])
        show_table("two", ["", "n"], [])

    assert printed(show, None) == (
        "**one**\n\n|  | n |\n| --- | ---: |\n| a | 1 |\n\n- first\n- second\n\n**two**\n\n|  | n |\n| --- | ---: |\n\n"
    )


@pytest.mark.parametrize("command", ["run", "compare", "fsl"])
def test_commands_show_every_number_on_80_columns(printed, toy_backbone, toy_bank, command):
    args = ["--dataset", "cifar100", "--backbone", str(toy_backbone(bank=toy_bank(train=17, test=6)))]
    call = {
        "run": ["run", "--method", "teen", "--draws", "4", *args],
        "compare": ["compare", "protonet", "teen", *args],
        "fsl": ["fsl", "--method", "teen", "--episodes", "20", *args],
    }[command]
    piped, shown = (printed(lambda: main(call, standalone_mode=False), columns) for columns in (None, 80))
    cells = [line.strip("| ").split(" | ") for line in piped.splitlines() if line.startswith("| ")]
    numbers = {cell for row in cells for cell in row if re.match(r"[+-]?\d", cell)}
    assert len(numbers) > 8
    assert [cell for cell in numbers if cell not in shown] == []
    assert "…" not in shown
    assert not re.search(r"[^\n]\n\*\*", piped)  # a blank line before every title
