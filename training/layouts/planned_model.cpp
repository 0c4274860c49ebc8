#include "lockstep/training/layouts/planned_model.h"

namespace lockstep {

double PlannedModel::elements() const {
  double sum = -shared_elements.sum();
  for (const size_t kind : parts) sum += kinds[kind].elements.sum() + kinds[kind].expert_elements;
  return sum;
}

}  // namespace lockstep
