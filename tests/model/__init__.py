"""An exhaustive state search of the commit protocol; `docs/model.md` says what is modelled and within which bounds."""
