"""Laws that every entry of the catalog obeys, and what a wrong name or option is answered."""

import pytest

from engram import data
from engram.core.errors import EngramError
from engram.data import registry

KINDS = {"images", "points", "text", "pairs", "captions", "sequences", "table", "patterns", "words", "spikes"}


@pytest.mark.parametrize("name", data.list_names())
def test_an_entry_says_all_that_a_list_shows(name):
    info = data.get_info(name)
    assert info.name == name
    assert info.kind in KINDS
    assert all((info.title, info.license, info.source, info.columns, info.sizes))
    assert bool(info.sha256) == (info.source != "generated")


@pytest.mark.parametrize("name", data.list_names())
def test_every_archive_is_hashed_whole_or_member_by_member(name):
    for source in registry.get_entry(name).sources:
        for archive in source.archives:
            hashes = [archive.sha256] if archive.sha256 else archive.contents
            assert archive.sha256 or len(archive.contents) == len(archive.members)
            assert all(len(one) == 64 for one in hashes)


def test_only_authors_addresses_are_written_down():
    """The registries' hosts are the clients' business."""
    registries = ("pypi", "pythonhosted", "npmjs", "debian.org", "ubuntu.com")
    for entry in registry.ENTRIES.values():
        names = [archive.name for source in entry.sources for archive in source.archives]
        assert not any(host in name for name in names for host in registries)


@pytest.mark.parametrize(
    ("name", "options", "sentence"),
    [
        ("mnits", {}, 'There is no data set "mnits". Did you mean "mnist"?'),
        ("points", {"shap": "moons"}, 'There is no option for the data set points "shap". Did you mean "shape"?'),
        ("points", {"shape": "moon"}, 'There is no shape of points "moon". Did you mean "moons"?'),
        ("points", {"count": 0}, "count is a whole number of samples from 1, not 0."),
        ("points", {"noise": float("nan")}, "noise is a standard deviation from 0, not nan."),
        ("mnist", {"size": 3}, "There are no options for the data set mnist, and size was given."),
        ("shapes", {"size": 4}, "size is a number of pixels from 8 to 512, not 4."),
        ("shapes", {"objects": 3}, "objects is 1 or 2, not 3."),
        ("copy", {"length": 0}, "length is a whole number from 1, not 0."),
        ("selective-copy", {"among": 3}, "10 symbols do not fit into 3 places: let `among` be at least `length`."),
        ("adding", {"length": 1}, "length is at least 2, so that two numbers can be marked, not 1."),
        ("dates", {"count": 70_000}, "There are 73049 days in the data set dates: ask for a count up to 60874."),
        ("patterns", {"which": "icon"}, 'There is no kind of patterns "icon". Did you mean "icons"?'),
        ("no/such/folder", {}, "There is no file or folder no/such/folder."),
    ],
)
def test_a_mistake_is_answered_in_one_sentence(name, options, sentence):
    with pytest.raises(EngramError) as caught:
        data.load(name, **options)
    assert str(caught.value) == sentence


def test_a_generated_set_needs_no_obtaining():
    assert data.is_cached("points")
    with pytest.raises(EngramError, match="generated"):
        data.download("points")


def test_a_known_name_wins_over_a_file_of_that_name(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "points").mkdir()
    assert data.load("points").info.source == "generated"
