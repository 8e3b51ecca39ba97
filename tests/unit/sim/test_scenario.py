"""How a story is read and told again."""

from tandemq.sim.scenario import blocks_of, retold


def test_a_story_is_blocks_of_commands_and_what_they_answer() -> None:
    text = "# why\n\nkill n0\n----\nn1 opens epoch 2\nn2 steps down\n\nheal\n----\n"
    assert blocks_of(text) == [("# why", []), ("kill n0", ["n1 opens epoch 2", "n2 steps down"]), ("heal", [])]


def test_a_story_told_again_has_what_really_happened() -> None:
    assert retold("# a lone node\n\nnodes 1 level 1\n----\nsomething else\n\nsend n0 2\n----\n") == (
        "# a lone node\n\nnodes 1 level 1\n----\nn0 opens epoch 1\n\nsend n0 2\n----\n2 of 2 acknowledged\n"
    )
