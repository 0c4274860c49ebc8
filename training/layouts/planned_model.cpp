#include "lockstep/training/layouts/planned_model.h"

#include <cmath>

namespace lockstep {

double PlannedModel::elements() const {
  double sum = -shared_elements.sum();
  for (const size_t kind : parts) sum += kinds[kind].elements.sum() + kinds[kind].expert_elements;
  for (const auto& table : tables) sum += table.elements();
  return sum;
}

double PlannedTable::distinct_rows(double examples) const {
  return -rows * std::expm1(-lookups * examples / rows);
}

}  // namespace lockstep
