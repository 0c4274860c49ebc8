#include "lockstep/parameter_server/service/step_collector.h"

#include <ATen/Functions.h>
#include <c10/util/StringUtil.h>

#include <algorithm>
#include <iterator>
#include <limits>
#include <span>
#include <utility>

#include "lockstep/parameter_server/shards/row_numbers.h"
#include "lockstep/runtime/base/errors.h"

namespace lockstep {
namespace {

/// Limits the memory that a wrong number can take.
constexpr uint32_t kMaxSlots = uint32_t{1} << 16;

/// The shard itself checks which of these rows it has.
std::span<const int64_t> checked_rows(const PushShards::Part& part) {
  const auto rows = ascending_row_numbers(part.rows, std::numeric_limits<int64_t>::max(), part.shard + ": ");
  if (std::ssize(rows) != part.gradient.size(0))
    throw InvalidArgument(c10::str(part.shard, ": expected a row for each gradient, but got ", rows.size(),
                                   " rows and gradients of shape ", part.gradient.sizes()));
  return rows;
}

bool can_be_added(const PushShards::Part& one, const PushShards::Part& other) {
  if (!one.gradient.defined() || !other.gradient.defined() || one.rows.defined() != other.rows.defined() ||
      one.gradient.scalar_type() != other.gradient.scalar_type() || one.lr != other.lr ||
      one.version != other.version || one.gradient.dim() != other.gradient.dim())
    return false;
  const size_t first = one.rows.defined() ? 1 : 0;  // the number of rows may differ
  return one.gradient.dim() >= static_cast<int64_t>(first) &&
         one.gradient.sizes().slice(first) == other.gradient.sizes().slice(first);
}

PushShards::Part sum_rows(const std::vector<PushShards::Part>& parts) {
  std::vector<int64_t> united;
  for (const auto& part : parts) {
    const auto rows = checked_rows(part);
    std::vector<int64_t> both;
    std::set_union(united.begin(), united.end(), rows.begin(), rows.end(), std::back_inserter(both));
    united = std::move(both);
  }
  PushShards::Part sum = parts.front();
  sum.rows = at::tensor(united, at::kLong);
  auto sizes = sum.gradient.sizes().vec();
  sizes[0] = static_cast<int64_t>(united.size());
  sum.gradient = at::zeros(sizes, sum.gradient.options());
  for (const auto& part : parts)
    sum.gradient.index_add_(0, at::searchsorted(sum.rows, part.rows), part.gradient);
  return sum;
}

}  // namespace

PushShards::Part sum_parts(const std::vector<PushShards::Part>& parts) {
  for (const auto& part : parts)
    if (!can_be_added(parts.front(), part))
      throw InvalidArgument(
          c10::str(part.shard, ": expected gradients of the same shape, dtype, learning rate and version"));
  if (parts.front().rows.defined()) return sum_rows(parts);
  PushShards::Part sum = parts.front();
  for (size_t i = 1; i < parts.size(); ++i)
    sum.gradient = i == 1 ? sum.gradient + parts[i].gradient : sum.gradient.add_(parts[i].gradient);
  return sum;
}

void StepCollector::add(const ContributeShards& contribution) {
  MutexLock lock(mutex_);
  if (contribution.step < step_) return;
  if (contribution.step > step_) slots_.clear();
  step_ = contribution.step;
  auto& slot = slots_[contribution.slot];
  if (slot.is_whole) slot = {};  // it is sent again
  for (const auto& part : contribution.parts) slot.parts[part.shard] = part;
  slot.is_whole = contribution.is_last;
}

StepCollector::Collected StepCollector::take(uint64_t step, uint32_t num_slots) {
  if (num_slots > kMaxSlots)
    throw InvalidArgument(
        c10::str("step ", step, ": expected up to ", kMaxSlots, " slots, but got ", num_slots));
  std::map<uint32_t, Slot> slots;
  {
    MutexLock lock(mutex_);
    if (step < step_) return {};
    if (step == step_ && !slots_.empty() && slots_.rbegin()->first >= num_slots)
      throw InvalidArgument(c10::str("step ", step, ": expected slots 0 to ", int64_t{num_slots} - 1,
                                     ", but got gradients of slot ", slots_.rbegin()->first));
    Collected collected;
    for (uint32_t i = 0; i < num_slots; ++i) {
      const auto found = slots_.find(i);
      if (step != step_ || found == slots_.end() || !found->second.is_whole) collected.missing.push_back(i);
    }
    if (!collected.missing.empty()) return collected;
    slots = std::exchange(slots_, {});
    step_ = step + 1;
  }
  std::map<std::string, std::vector<PushShards::Part>> by_shard;
  for (auto& [number, slot] : slots)
    for (auto& [shard, part] : slot.parts) by_shard[shard].push_back(std::move(part));
  Collected collected;
  for (const auto& [shard, parts] : by_shard) collected.summed.push_back(sum_parts(parts));
  return collected;
}

}  // namespace lockstep
