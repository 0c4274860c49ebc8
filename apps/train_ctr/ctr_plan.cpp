#include "lockstep/apps/train_ctr/ctr_plan.h"

namespace lockstep::apps {

PlannedClickModel planned_click_model(const CtrWork& work) {
  return {.is_dlrm = work.model == CtrModelKind::kDlrm,
          .table_rows = work.table_rows,
          .embedding_dim = work.embedding_dim,
          .numbers =
              work.precision == CtrPrecision::kFloat64 ? PlannedNumbers::kFloat64 : PlannedNumbers::kFloat32};
}

PlannedTraining planned_click_training(const CtrWork& work) {
  const int64_t states = work.optimizer == CtrOptimizerKind::kSgd       ? 0
                         : work.optimizer == CtrOptimizerKind::kAdagrad ? 1
                                                                        : 2;
  return {.global_batch = work.global_batch_size,
          .parameter_bytes = work.precision == CtrPrecision::kFloat64 ? 8 : 4,
          .optimizer_states = states};
}

LayoutChoices click_layout_choices() {
  return {.stages = {0}, .with_recomputation = false, .most_micro_batches = 1};
}

}  // namespace lockstep::apps
