#include "lockstep/apps/train_ctr/ctr_layout.h"

#include "lockstep/apps/shared/planning/layout_check.h"
#include "lockstep/apps/train_ctr/ctr_plan.h"

namespace lockstep::apps {

void refuse_what_does_not_fit(const Strategy& strategy, const CtrOptions& options) {
  const auto memory = memory_to_check(strategy, options);
  if (!memory) return;
  const LayoutPlanner planner(planned_clicks(planned_click_model(options)), cluster_of(strategy, *memory),
                              planned_click_training(options));
  refuse_if_too_large(planner, PlannedProgram::kTrainCtr, {.data = strategy.num_ranks()},
                      click_layout_choices());
}

}  // namespace lockstep::apps
