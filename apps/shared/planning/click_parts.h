#pragma once

#include <cstdint>
#include <vector>

#include "lockstep/apps/shared/planning/planned_numbers.h"
#include "lockstep/training/layouts/planned_model.h"

namespace lockstep::apps {

/// A click model as train_ctr trains it: the sizes of its table and of its network.
struct PlannedClickModel {
  bool is_dlrm = false;  ///< else Wide & Deep
  int64_t table_rows = int64_t{1} << 18;
  int64_t embedding_dim = 16;
  PlannedNumbers numbers = PlannedNumbers::kFloat32;  ///< not kMixed
  int64_t num_numbers = 13;
  int64_t num_categories = 26;
  std::vector<int64_t> bottom_units{64};        ///< of DlrmOptions
  std::vector<int64_t> top_units{128, 64};      ///< of DlrmOptions
  std::vector<int64_t> hidden_units{256, 128};  ///< of WideAndDeepOptions
};

/// Returns the network as one part, and the tables of whose rows it computes, without making them. All
/// numbers are formulas of the sizes: a test compares them with records and with the bytes of trainings.
PlannedModel planned_clicks(const PlannedClickModel& model);

}  // namespace lockstep::apps
