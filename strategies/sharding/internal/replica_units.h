#pragma once

#include <ATen/core/Tensor.h>
#include <torch/csrc/distributed/c10d/Work.hpp>

#include <cstdint>
#include <memory>
#include <vector>

#include "lockstep/runtime/replicas/replica_collectives.h"
#include "lockstep/strategies/sharding/gathered_units.h"
#include "lockstep/strategies/sharding/internal/unit_order.h"

namespace lockstep {

class ShardedUnit;
class UnitCall;

/// The sums of a unit's gradients, while they are under way.
struct UnitSum {
  std::shared_ptr<ShardedUnit> unit;
  std::vector<c10::intrusive_ptr<c10d::Work>> works;
  std::vector<at::Tensor> sent;  // whole gradients, which the works read
  std::vector<at::Tensor> sums;  // of the shards; undefined without a gradient
};

/// State that the units of a replica share. It has the unit that is expected next gathered while another one
/// computes, and bounds the memory for that: at most two units are whole, and the gradients of one more are
/// being summed. Only the replica's thread may use it.
///
/// Collectives begin at a unit's own collectives only, and depend on nothing but the uses of units since the
/// last failure, so that all ranks begin the same ones in the same order.
class ReplicaUnits final : public EndsWithRun {
 public:
  GatheredUnits counter;
  /// The last call of a recomputation, whose backward comes next, so that it still holds its parameters.
  std::weak_ptr<UnitCall> kept;
  /// The sequence numbers of autograd nodes between which the last forward of a unit was recorded.
  struct Recorded {
    uint64_t begin = 0;
    uint64_t end = 0;
  };
  Recorded last_forward;

  /// Returns the number of a unit that belongs to the replica from now on.
  int64_t add(const std::shared_ptr<ShardedUnit>& unit);

  /// Notes a use of a unit, which acquires it next. Frees a unit that was gathered ahead if it is another
  /// one.
  void begin_use(const ShardedUnit& unit, UnitUse::Kind kind);
  /// Returns an object that lives as long as a call computes with its unit.
  std::shared_ptr<const void> begin_computing() const { return computing_; }
  /// Begins to gather the unit that is expected next, if there is one and at most one computes.
  void gather_next();
  /// Keeps the parameters of a unit for its next use, if that is expected now. Its only call lets go of them
  /// then.
  void keep_for_next(const std::shared_ptr<ShardedUnit>& unit);

  /// Keeps the sums, of which the last ones have ended.
  void begin_sum(std::shared_ptr<UnitSum> sum) { sum_ = std::move(sum); }
  /// Blocks until the last sums have ended.
  void finish_sum();

  void end_run() override;
  void abandon_run() noexcept override;

 private:
  void drop_ahead();
  void drop_kept();

  UnitOrder order_;
  std::vector<std::weak_ptr<ShardedUnit>> units_;  // by number
  std::shared_ptr<ShardedUnit> ahead_;             // the unit that is gathered ahead or kept, if one is
  std::shared_ptr<UnitSum> sum_;
  std::shared_ptr<const void> computing_ = std::make_shared<char>();  // its owners compute
};

}  // namespace lockstep
