#include "lockstep/training/state/memory_formula.h"

#include <c10/util/StringUtil.h>

#include <algorithm>
#include <functional>
#include <map>
#include <string>

#include "lockstep/runtime/base/errors.h"
#include "lockstep/runtime/gradients/bucket_layout.h"

namespace lockstep {
namespace {

void check_layout(const MemoryLayout& layout) {
  const auto expect = [](bool is_met, const std::string& expected, int64_t given) {
    if (!is_met) throw InvalidArgument(c10::str("[predict_memory] expected ", expected, ", but got ", given));
  };
  expect(layout.stage >= 0 && layout.stage <= 3, "a stage from 0 to 3", layout.stage);
  expect(layout.num_parts >= 1, "1 or more parts", layout.num_parts);
  expect(layout.units_at_once >= 1, "1 or more units at once", layout.units_at_once);
  expect(layout.units_shared_by >= 1, "units of 1 or more ranks", layout.units_shared_by);
  expect(layout.summed_element_bytes >= 0, "0 or more bytes of a summed element",
         layout.summed_element_bytes);
  for (const auto& parameter : layout.parameters) {
    expect(parameter.elements >= 0, "0 or more elements", parameter.elements);
    expect(parameter.element_bytes >= 1, "1 or more bytes of an element", parameter.element_bytes);
    expect(parameter.states.value_or(0) >= 0, "0 or more tensors of state", parameter.states.value_or(0));
    expect(!parameter.unit || layout.stage == 3, "units in stage 3 only", layout.stage);
  }
}

/// Bytes of a rank's part of the elements.
int64_t part_of(const ParameterLayout& parameter, int64_t num_parts) {
  return (parameter.elements + num_parts - 1) / num_parts * parameter.element_bytes;
}

int64_t bytes_of(const ParameterLayout& parameter) {
  return parameter.elements * parameter.element_bytes;
}

/// Bytes of an element's copy in a shorter dtype, 0 if there is none.
int64_t rounded_bytes(const MemoryLayout& layout, const ParameterLayout& parameter) {
  const bool is_rounded = layout.summed_element_bytes > 0 && parameter.element_bytes >= 4;
  return is_rounded ? layout.summed_element_bytes : 0;
}

/// The two largest neighbours.
int64_t buckets_of_parts(const MemoryLayout& layout) {
  std::vector<BucketItem> items;
  std::vector<size_t> order;
  items.reserve(layout.parameters.size());
  order.reserve(layout.parameters.size());
  for (const auto& parameter : layout.parameters)
    items.push_back({bytes_of(parameter), std::to_string(parameter.element_bytes)});
  // Gradients arrive in about the reverse order.
  for (size_t i = items.size(); i-- > 0;) {
    if (layout.parameters[i].is_trained && !layout.parameters[i].is_part) order.push_back(i);
  }
  int64_t most = 0, before = 0;
  for (const auto& bucket : assign_buckets(items, order, layout.buckets)) {
    int64_t bytes = 0;
    for (const size_t i : bucket) {
      const auto& parameter = layout.parameters[i];
      bytes += bytes_of(parameter) + parameter.elements * rounded_bytes(layout, parameter);
    }
    most = std::max(most, before + bytes);
    before = bytes;
  }
  return most;
}

int64_t most_of_units(const MemoryLayout& layout) {
  std::map<int64_t, int64_t> by_unit;
  for (const auto& parameter : layout.parameters) {
    if (parameter.unit) by_unit[*parameter.unit] += bytes_of(parameter);
  }
  std::vector<int64_t> sizes;
  sizes.reserve(by_unit.size());
  for (const auto& [unit, bytes] : by_unit) sizes.push_back(bytes);
  std::sort(sizes.begin(), sizes.end(), std::greater<>());
  int64_t sum = 0;
  for (size_t i = 0; i < sizes.size() && static_cast<int64_t>(i) < layout.units_at_once; ++i) sum += sizes[i];
  return sum;
}

}  // namespace

MemoryParts predict_memory(const MemoryLayout& layout) {
  check_layout(layout);
  MemoryParts memory{.optimizer_state = 0};
  for (const auto& parameter : layout.parameters) {
    const int64_t whole = bytes_of(parameter);
    const int64_t part = part_of(parameter, layout.num_parts);
    const bool is_cut = parameter.unit.has_value();
    memory.parameters += is_cut ? part : whole;
    if (!parameter.is_trained) continue;
    const bool is_divided = !parameter.is_part;
    const bool has_part_of_gradient = is_cut || (layout.stage == 2 && is_divided);
    const bool has_part_of_state = has_part_of_gradient || (layout.stage == 1 && is_divided);
    if (!parameter.has_sparse_gradient) memory.gradients += has_part_of_gradient ? part : whole;
    if (!parameter.states) memory.optimizer_state.reset();
    if (memory.optimizer_state)
      *memory.optimizer_state += *parameter.states * (has_part_of_state ? part : whole);
    if (!parameter.has_sparse_gradient && (layout.stage != 2 || !is_divided)) {
      memory.buckets += (is_cut ? part : whole) / parameter.element_bytes * rounded_bytes(layout, parameter);
    }
  }
  if (layout.stage == 2) memory.buckets += buckets_of_parts(layout);
  if (layout.stage == 3 && layout.num_parts > 1)
    memory.gathered_units = most_of_units(layout) / layout.units_shared_by;
  return memory;
}

}  // namespace lockstep
