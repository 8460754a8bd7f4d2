"""Threshold policies of priority groups: static, dynamic alpha, predictive; bounds that nobody gets past. Sans-IO."""

from dcb.thresholds.policy import Bounds as Bounds
from dcb.thresholds.policy import DynamicAlpha as DynamicAlpha
from dcb.thresholds.policy import EwmaPredictor as EwmaPredictor
from dcb.thresholds.policy import HoltPredictor as HoltPredictor
from dcb.thresholds.policy import PlannedGroup as PlannedGroup
from dcb.thresholds.policy import PredictivePolicy as PredictivePolicy
from dcb.thresholds.policy import Predictor as Predictor
from dcb.thresholds.policy import Sample as Sample
from dcb.thresholds.policy import Setting as Setting
from dcb.thresholds.policy import StaticPolicy as StaticPolicy
from dcb.thresholds.policy import ThresholdPolicy as ThresholdPolicy
from dcb.thresholds.policy import plan_bounds as plan_bounds
from dcb.thresholds.policy import predictor as predictor
