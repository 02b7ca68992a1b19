"""The progress bar, with tqdm and without."""

import builtins

from problems.cases import squared

import entroplay as ep


def test_progress_with_tqdm_and_without(capsys, monkeypatch):
    ep.solve(squared(), ep.EFP(0.1), particles=16, iterations=20, progress=True)
    assert "20/20" in capsys.readouterr().err
    real_import = builtins.__import__

    def no_tqdm(name, *args, **kwargs):
        if name.startswith("tqdm"):
            raise ImportError(name)
        return real_import(name, *args, **kwargs)

    monkeypatch.setattr(builtins, "__import__", no_tqdm)
    ep.solve(squared(), ep.EFP(0.1), particles=16, iterations=20, progress=True)
    assert "iteration 20 of 20" in capsys.readouterr().out
