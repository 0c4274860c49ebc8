#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "lockstep/models/gpt/gpt_options.h"
#include "lockstep/training/layouts/layout_planner.h"
#include "lockstep/training/layouts/layout_search.h"

namespace lockstep::benchmarks {

/// A training of a Gpt on some devices, whose layouts are planned and measured.
struct OrderCase {
  std::string name;
  GptOptions model{};
  int64_t length = 32;  ///< tokens of a sequence
  PlannedTraining training{};
  /// Emulated devices; or this machine, whose rates are measured.
  PlannedCluster cluster{};
  bool is_emulated = true;
};

/// Returns the cases in the order of their numbers, from 1 on: emulated ones first.
std::vector<OrderCase> order_cases();

/// Returns the layouts of this machine's replicas with measured rates in place of zeros, which takes a
/// second.
LayoutPlanner planner_of(const OrderCase& order_case);

/// Returns the ways to cut a training that a layout uses, such as "data x pipeline".
std::string kind_of(const PlannedLayout& layout);
/// Returns a layout in words, with the micro-batches of a replica.
std::string text_of(const PlannedLayout& layout);

/// Returns the layout that is planned to be the fastest that fits, and then the best of each other way to use
/// the devices, up to `most` layouts; of those with the same mesh, also other schedules and micro-batches.
/// They are in the planned order. Empty: nothing fits.
std::vector<PlannedChoice> layouts_to_measure(const LayoutPlanner& planner, size_t most);

}  // namespace lockstep::benchmarks
