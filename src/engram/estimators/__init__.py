"""Estimators of scikit-learn's kind.

`fit`, `predict` and `transform` on arrays and frames, in pipelines and searches.

    clf = make_pipeline(SimpleImputer(), MLPClassifier()).fit(X, y)
    GridSearchCV(MLPRegressor(), {"hidden": [(32,), (64, 64)]})
    vectors = WordVectors(min_count=2).fit(texts)

They train the learners of the recipes in memory, without a run folder; `engram.run` keeps a run that can be resumed.
Needs the extra `estimators` (scikit-learn).
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
