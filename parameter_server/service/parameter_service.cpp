#include "lockstep/parameter_server/service/parameter_service.h"

#include <c10/util/StringUtil.h>

#include <optional>
#include <utility>

#include "lockstep/runtime/base/errors.h"

namespace lockstep {
namespace {

void check_shape(const CreateShard& request) {
  const auto& [name, variable, rows, values, initial, rule, filter, growth] = request;
  if (!values.defined()) throw InvalidArgument(c10::str(name, ": expected values, but got none"));
  const int64_t num_rows = initial ? 0 : rows.size();
  const bool fits = values.dim() > 0 ? values.size(0) == num_rows : !initial && rows == RowRange{0, 1};
  if (!fits || rows.begin < 0 || rows.size() < 0)
    throw InvalidArgument(c10::str(name, ": expected ", num_rows, " rows of values, for rows ", rows.begin,
                                   " to ", rows.end - 1, " of ", variable, ", but got values of shape ",
                                   values.sizes()));
  if (!initial && growth)
    throw InvalidArgument(
        c10::str(name, ": expected values that the server makes, as it grows, but got values"));
  if (!initial && !filter.takes_all())
    throw InvalidArgument(
        c10::str(name, ": expected a row filter with values that the server makes, but got one without"));
}

/// Sizes of the requested shard.
std::vector<int64_t> sizes_of(const CreateShard& request) {
  auto sizes = request.values.sizes().vec();
  if (!sizes.empty()) sizes[0] = request.rows.size();
  return sizes;
}

/// Returns whether the table grows as it did when it was saved, but in another amount of memory.
bool has_another_limit(const ParameterShard& shard, const CreateShard& request) {
  if (!shard.growth() || !request.growth || shard.growth() == request.growth) return false;
  RowGrowth growth = *shard.growth();
  growth.max_bytes = request.growth->max_bytes;
  return growth == *request.growth;
}

}  // namespace

void ParameterService::restore(HeldShard shard) {
  MutexLock lock(mutex_);
  const std::string name = shard.shard->name();
  if (!shards_.try_emplace(name, std::move(shard)).second)
    throw InvalidArgument(c10::str("expected each shard once, but got '", name, "' twice"));
  unclaimed_.insert(name);
}

RpcMessage ParameterService::handle(const RpcMessage& request) {
  return std::visit([&](const auto& asked) { return answer(asked); }, decode_request(request));
}

std::vector<std::string> ParameterService::shard_names() const {
  MutexLock lock(mutex_);
  std::vector<std::string> names;
  for (const auto& [name, held] : shards_) names.push_back(name);
  return names;
}

std::shared_ptr<ParameterShard> ParameterService::shard(const std::string& name) const {
  MutexLock lock(mutex_);
  const auto found = shards_.find(name);
  if (found == shards_.end())
    throw InvalidArgument(c10::str("expected one of its ", shards_.size(), " shards, but got '", name, "'"));
  unclaimed_.erase(name);
  return found->second.shard;
}

std::vector<HeldShard> ParameterService::all_shards() const {
  MutexLock lock(mutex_);
  std::vector<HeldShard> all;
  for (const auto& [name, held] : shards_) all.push_back(held);
  return all;
}

/// Returns the shard if it is present with these rows. Otherwise drops the unclaimed restored shards of the
/// variable, which is partitioned differently now, or has another limit of memory.
ParameterService::PresentShard ParameterService::present_shard(const CreateShard& request) {
  MutexLock lock(mutex_);
  const auto found = shards_.find(request.shard);
  if (found != shards_.end() && found->second.variable == request.variable &&
      found->second.rows == request.rows &&
      !(unclaimed_.contains(request.shard) && has_another_limit(*found->second.shard, request))) {
    return {found->second.shard, unclaimed_.erase(request.shard) > 0};
  }
  std::erase_if(shards_, [&](const auto& entry) LOCKSTEP_REQUIRES(mutex_) {
    return entry.second.variable == request.variable && unclaimed_.erase(entry.first) > 0;
  });
  return {};
}

RpcMessage ParameterService::answer(const CreateShard& request) {
  check_shape(request);
  const auto& [name, variable, rows, values, initial, rule, filter, growth] = request;
  const auto filtered = request.filtered();
  const auto sizes = sizes_of(request);
  const std::string source = storage_ ? storage_->source() : "";
  if (const auto present = present_shard(request); present.shard) {
    present.shard->check_alike(sizes, values.scalar_type(), rule, filtered, growth);
    return encode_created({present.was_restored ? ShardOrigin::kRestored : ShardOrigin::kPresent, source});
  }
  // Made without the lock, since a large shard takes time. If two are made at once, the first one stays.
  std::optional<ParameterShard::Saved> saved;
  if (storage_)
    saved = growth ? storage_->find_growing(variable, *filtered, *growth) : storage_->find(variable, rows);
  const auto shard =
      std::make_shared<ParameterShard>(name,
                                       saved                ? saved->values
                                       : initial && !growth ? make_values(*initial, rows, values)
                                                            : values,
                                       rule, filtered, growth, disk_);
  shard->check_alike(sizes, values.scalar_type(), rule, filtered, growth);
  if (saved) shard->restore(*saved);
  HeldShard held;
  {
    MutexLock lock(mutex_);
    const auto [entry, is_new] = shards_.try_emplace(name, HeldShard{variable, rows, shard});
    if (is_new) return encode_created({saved ? ShardOrigin::kRestored : ShardOrigin::kNew, source});
    held = entry->second;
  }
  if (held.variable != variable || held.rows != rows)
    throw InvalidArgument(c10::str(name, ": expected rows ", held.rows.begin, " to ", held.rows.end - 1,
                                   " of ", held.variable, ", as it was made with, but got ", rows.begin,
                                   " to ", rows.end - 1, " of ", variable));
  held.shard->check_alike(sizes, values.scalar_type(), rule, filtered, growth);
  return encode_created({ShardOrigin::kPresent, source});
}

RpcMessage ParameterService::answer(const PullShards& request) const {
  std::vector<ParameterShard::Pulled> pulled;
  pulled.reserve(request.parts.size());
  for (const auto& part : request.parts) {
    const auto asked = shard(part.shard);
    pulled.push_back(part.rows.defined() ? asked->pull_rows(part.rows) : asked->pull());
  }
  return encode_pulled(pulled);
}

RpcMessage ParameterService::answer(const PushShards& request) {
  std::vector<PushResult> results;
  results.reserve(request.parts.size());
  for (const auto& part : request.parts) results.push_back(push(request.id, part));
  return encode_pushed(results);
}

PushResult ParameterService::push(const PushId& id, const PushShards::Part& part) {
  const PushedStep step{.id = id, .lr = part.lr, .version = part.version};
  const auto asked = shard(part.shard);
  return part.rows.defined() ? asked->push_rows(part.rows, part.gradient, step)
                             : asked->push(part.gradient, step);
}

RpcMessage ParameterService::answer(const ContributeShards& request) {
  for (const auto& part : request.parts) shard(part.shard);  // throws if the shard is missing
  collector_.add(request);
  return {};
}

RpcMessage ParameterService::answer(const CommitStep& request) {
  MutexLock lock(commit_mutex_);
  const auto [missing, summed] = collector_.take(request.step, request.num_slots);
  for (const auto& part : summed) {
    push({.closure = request.step, .number = 0}, part);
    shard(part.shard)->forget_before(request.step);
  }
  return encode_committed(missing);
}

RpcMessage ParameterService::answer(const ForgetPushes& request) {
  for (const auto& held : all_shards()) held.shard->forget_before(request.before_closure);
  return {};
}

RpcMessage ParameterService::answer(const EndServing&) const {
  if (on_end_) on_end_();
  return {};
}

RpcMessage ParameterService::answer(const SaveShards& request) const {
  if (!storage_) throw InvalidArgument("expected no request to save, as this server was given no folder");
  return encode_saved(storage_->save(request.folder, all_shards()));
}

}  // namespace lockstep
