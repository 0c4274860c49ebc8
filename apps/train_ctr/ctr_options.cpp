#include "lockstep/apps/train_ctr/ctr_options.h"

namespace lockstep::apps {

std::string ctr_model_name(CtrModelKind model) {
  return model == CtrModelKind::kWideDeep ? "wide_deep" : "dlrm";
}

std::string ctr_optimizer_name(CtrOptimizerKind optimizer) {
  switch (optimizer) {
    case CtrOptimizerKind::kSgd:
      return "sgd";
    case CtrOptimizerKind::kAdagrad:
      return "adagrad";
    case CtrOptimizerKind::kAdam:
      break;
  }
  return "adam";
}

std::string ctr_precision_name(CtrPrecision precision) {
  return precision == CtrPrecision::kFloat32 ? "float32" : "float64";
}

bool is_generated(const CtrWork& work) {
  return work.data.size() == 1 && work.data.front() == "generated";
}

double default_learning_rate(CtrOptimizerKind optimizer) {
  switch (optimizer) {
    case CtrOptimizerKind::kSgd:
      return 0.5;
    case CtrOptimizerKind::kAdagrad:
      return 0.05;
    case CtrOptimizerKind::kAdam:
      break;
  }
  return 0.001;
}

}  // namespace lockstep::apps
