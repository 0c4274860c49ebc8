#include "lockstep/strategies/sharding/internal/sharded_unit.h"

#include <c10/core/ScalarType.h>
#include <c10/util/StringUtil.h>

#include <algorithm>
#include <map>
#include <utility>

#include "lockstep/runtime/base/errors.h"
#include "lockstep/runtime/collectives/collective_label.h"
#include "lockstep/runtime/replicas/sharded_parameter.h"
#include "lockstep/runtime/replicas/wait_clock.h"

namespace lockstep {
namespace {

void check_options(const UnitOptions& options) {
  if (options.size < 1 || options.index < 0 || options.index >= options.size) {
    throw InvalidArgument(c10::str("[Sharded] expected an index from 0 to size - 1, but got index ",
                                   options.index, " of size ", options.size, " for unit '", options.name,
                                   "'"));
  }
}

void check_can_be_cut(const UnitParameter& parameter, const std::string& unit) {
  const auto& tensor = parameter.tensor;
  const auto refuse = [&](const std::string& what) {
    throw InvalidArgument("[Sharded] expected parameters that can be cut, but '" + parameter.name +
                          "' of unit '" + unit + "' " + what);
  };
  if (tensor.layout() != at::kStrided) refuse("is not a dense tensor");
  if (!tensor.is_leaf()) refuse("is computed from others: a parameter must be a leaf");
  if (!tensor.is_non_overlapping_and_dense())
    refuse(c10::str("has gaps or overlaps in its memory, with sizes ", tensor.sizes(), " and strides ",
                    tensor.strides()));
  // A slice of rows counts their elements in this order.
  if (is_cut(tensor) && !tensor.is_contiguous())
    refuse(c10::str("is a part that is not contiguous, with sizes ", tensor.sizes(), " and strides ",
                    tensor.strides()));
}

}  // namespace

ShardedUnit::ShardedUnit(const std::vector<UnitParameter>& parameters, UnitOptions options)
    : options_(std::move(options)) {
  check_options(options_);
  for (size_t i = 0; i < parameters.size(); ++i) {
    check_can_be_cut(parameters[i], options_.name);
    for (size_t other = 0; other < i; ++other) {
      const auto& [name, tensor] = parameters[other];
      if (tensor.numel() == 0 || !parameters[i].tensor.is_alias_of(tensor)) continue;
      throw InvalidArgument(c10::str("[Sharded] expected parameters with memory of their own, but '",
                                     parameters[i].name, "' of unit '", options_.name, "' shares that of '",
                                     name, "': register one tensor under both names"));
    }
  }
  // Parameters with and without gradient apart, so that no zeros are summed.
  using Kind = std::pair<at::ScalarType, bool>;
  std::vector<Kind> kinds;
  std::map<Kind, std::vector<UnitParameter>> by_kind;
  for (const auto& parameter : parameters) {
    const Kind kind{parameter.tensor.scalar_type(), parameter.tensor.requires_grad()};
    if (!by_kind.contains(kind)) kinds.push_back(kind);
    by_kind[kind].push_back(parameter);
  }
  for (const auto& kind : kinds) {
    groups_.push_back(std::make_unique<UnitParameters>(
        std::move(by_kind[kind]),
        UnitParameters::Part{
            .unit = options_.name, .axis = options_.axis, .index = options_.index, .size = options_.size}));
  }
  for (const auto& tensor : this->parameters()) parameter_versions_.push_back(tensor._version());
}

void ShardedUnit::rename(const std::string& name) {
  options_.name = name;
  for (const auto& group : groups_) group->rename(name);
}

void ShardedUnit::bind(std::shared_ptr<const ReplicaCollectives> replica) {
  const AxisPosition& position = replica->position("Sharded", options_.axis);
  if (position.size != options_.size || position.index != options_.index) {
    throw InvalidArgument(c10::str(
        "[Sharded] expected unit '", options_.name, "' to be part ", position.index, " of ", position.size,
        ", one for each replica along the axis ", options_.axis, ", but it is part ", options_.index, " of ",
        options_.size, ": pass along(replica.axis(\"", options_.axis, "\"))"));
  }
  if (position.role == AxisRole::kModel && position.size > 1) {
    throw InvalidArgument(c10::str(
        "[Sharded] expected an axis over which gradients are summed, such as data, but "
        "unit '",
        options_.name, "' is cut over the ranks along ", options_.axis, ", along which layers are cut"));
  }
  const auto units = replica->shared<ReplicaUnits>();
  if (units != replica_units_) number_ = units->add(shared_from_this());
  replica_units_ = units;
  replica_ = std::move(replica);
}

std::vector<UnitParameter> ShardedUnit::named_parameters() const {
  std::vector<UnitParameter> all;
  for (const auto& group : groups_)
    all.insert(all.end(), group->parameters().begin(), group->parameters().end());
  return all;
}

std::vector<at::Tensor> ShardedUnit::parameters() const {
  std::vector<at::Tensor> all;
  for (const auto& group : groups_) {
    for (const auto& parameter : group->parameters()) all.push_back(parameter.tensor);
  }
  return all;
}

std::vector<at::Tensor> ShardedUnit::shards() const {
  std::vector<at::Tensor> all;
  for (const auto& group : groups_) all.insert(all.end(), group->shards().begin(), group->shards().end());
  return all;
}

at::Tensor ShardedUnit::shard_of(const at::Tensor& parameter) const {
  for (const auto& group : groups_) {
    for (size_t i = 0; i < group->shards().size(); ++i) {
      if (group->parameters()[i].tensor.is_same(parameter)) return group->shards()[i];
    }
  }
  return {};
}

std::vector<int64_t> ShardedUnit::versions() const {
  std::vector<int64_t> versions;
  for (const auto& group : groups_) {
    for (const auto& shard : group->shards()) versions.push_back(shard._version());
  }
  return versions;
}

void ShardedUnit::check_unchanged() const {
  const auto all = named_parameters();
  for (size_t i = 0; i < all.size(); ++i) {
    if (all[i].tensor._version() == parameter_versions_[i]) continue;
    throw InvalidArgument("[Sharded] unit '" + options_.name + "' changed its parameter '" + all[i].name +
                          "' in place: the whole values are a copy that is dropped after each use. Keep what "
                          "forward changes in a buffer");
  }
}

c10::intrusive_ptr<c10d::Backend> ShardedUnit::backend() const {
  if (options_.size == 1) return nullptr;
  if (replica_ == nullptr) {
    throw InvalidArgument(
        "[Sharded] expected unit '" + options_.name +
        "' to be part of a module that Strategy::scope() returned, since other replicas hold the other parts "
        "of its parameters, but it belongs to no replica yet");
  }
  return replica_->backends("Sharded", options_.axis).device;
}

/// Calls `call` with the backend. Its collectives match only those of the same unit, and a mismatch names it.
template <typename Call>
auto ShardedUnit::collective(const char* operation, const Call& call) {
  const auto ranks = backend();
  std::optional<WaitClock::Wait> wait;
  if (ranks) wait.emplace(replica_->waits());
  const CollectiveLabel label(ranks.get(), " of unit '" + options_.name + "'");
  try {
    return call(ranks.get());
  } catch (const CollectiveMismatch& error) {
    throw CollectiveMismatch(
        c10::str("[Sharded] unit '", options_.name, "', ", operation, ": ", error.what()));
  }
}

void ShardedUnit::follow_shards() {
  if (num_holders_ > 0 || is_ahead_) return;
  num_bytes_ = 0;
  for (const auto& group : groups_) {
    group->follow_shards();
    num_bytes_ += group->num_bytes();
  }
}

void ShardedUnit::give_up() {
  for (const auto& group : groups_) group->give_up();
  num_bytes_ = 0;
}

void ShardedUnit::acquire() {
  if (num_holders_ == 0) {
    if (is_ahead_ && !is_fresh()) drop_ahead();
    if (!is_ahead_) {
      if (is_counted()) replica_units_->finish_sum();  // The memory is needed now, and the order is the same.
      begin_gather();
    }
    end_gather();
  }
  ++num_holders_;
}

void ShardedUnit::gather_ahead() {
  begin_gather();
  is_ahead_ = true;
}

/// Returns whether the shards are those that were gathered.
bool ShardedUnit::is_fresh() const {
  return versions() == gathered_versions_ &&
         std::all_of(groups_.begin(), groups_.end(),
                     [](const auto& group) { return group->are_shards_in_place(); });
}

void ShardedUnit::drop_ahead() {
  end_gather();
  ++num_holders_;
  release();
}

void ShardedUnit::begin_gather() {
  follow_shards();
  gathered_versions_ = versions();
  const auto ranks = backend();
  num_sharing_ = groups_.empty() ? 1 : groups_.front()->num_sharing(ranks.get());
  counted_bytes_ = num_bytes_ / num_sharing_;
  if (is_counted()) replica_units_->counter.add(counted_bytes_);
  try {
    collective("gathering its parameters", [&](c10d::Backend* backend) {
      for (const auto& group : groups_) works_.push_back(group->begin_gather(backend));
    });
  } catch (...) {
    abandon();
    throw;
  }
}

void ShardedUnit::end_gather() {
  try {
    collective("gathering its parameters", [&](c10d::Backend*) {
      for (const auto& work : works_) {
        if (work) work->wait();
      }
    });
  } catch (...) {
    abandon();
    throw;
  }
  works_.clear();
  is_ahead_ = false;
  for (const auto& group : groups_) group->end_gather();
}

void ShardedUnit::abandon() noexcept {
  works_.clear();
  is_ahead_ = false;
  for (const auto& group : groups_) group->abandon();
  if (is_counted()) replica_units_->counter.remove(counted_bytes_);
}

void ShardedUnit::release() {
  if (--num_holders_ > 0) return;
  if (is_ahead_) {
    for (const auto& group : groups_) group->hide();
    return;
  }
  for (const auto& group : groups_) group->free();
  if (is_counted()) replica_units_->counter.remove(counted_bytes_);
}

std::shared_ptr<UnitSum> ShardedUnit::begin_sum(std::vector<at::Tensor> gradients, bool is_last) {
  const auto sum = std::make_shared<UnitSum>();
  sum->unit = shared_from_this();
  const bool in_place = is_last && num_holders_ == 1 && options_.size > 1;
  collective("summing its gradients", [&](c10d::Backend* backend) {
    size_t next = 0;
    for (const auto& group : groups_) {
      const auto& shards = group->shards();
      std::vector<at::Tensor> own(
          std::make_move_iterator(gradients.begin() + static_cast<int64_t>(next)),
          std::make_move_iterator(gradients.begin() + static_cast<int64_t>(next + shards.size())));
      next += shards.size();
      const bool has_gradients =
          std::any_of(shards.begin(), shards.end(), [](const auto& shard) { return shard.requires_grad(); });
      if (!has_gradients) {
        sum->sums.resize(next);
        continue;
      }
      auto begun = group->begin_sum(backend, own, in_place);
      sum->works.push_back(std::move(begun.work));
      sum->sent.push_back(std::move(begun.sent));
      std::move(begun.of_shards.begin(), begun.of_shards.end(), std::back_inserter(sum->sums));
    }
  });
  if (replica_units_) replica_units_->counter.add_reduce_scatter();
  return sum;
}

void ShardedUnit::finish(UnitSum& sum) {
  const auto works = std::exchange(sum.works, {});
  collective("summing its gradients", [&](c10d::Backend*) {
    for (const auto& work : works) {
      if (work) work->wait();
    }
  });
  sum.sent.clear();
}

}  // namespace lockstep
