#include "lockstep/strategies/sharding/internal/replica_units.h"

#include <utility>

#include "lockstep/strategies/sharding/internal/sharded_unit.h"
#include "lockstep/strategies/sharding/internal/unit_call.h"

namespace lockstep {

int64_t ReplicaUnits::add(const std::shared_ptr<ShardedUnit>& unit) {
  units_.push_back(unit);
  return static_cast<int64_t>(units_.size()) - 1;
}

void ReplicaUnits::begin_use(const ShardedUnit& unit, UnitUse::Kind kind) {
  if (ahead_.get() == &unit) {
    ahead_.reset();
  } else {
    drop_ahead();
  }
  order_.move_on({unit.number(), kind});
}

void ReplicaUnits::gather_next() {
  const bool is_one_at_most = computing_.use_count() <= 2;  // one is this object's own
  if (ahead_ != nullptr || !is_one_at_most) return;
  const auto next = order_.next();
  if (!next) return;
  auto unit = units_[static_cast<size_t>(next->unit)].lock();
  if (unit == nullptr || !unit->options().overlap || unit->num_holders() > 0) return;
  unit->gather_ahead();
  ahead_ = std::move(unit);
}

void ReplicaUnits::keep_for_next(const std::shared_ptr<ShardedUnit>& unit) {
  const auto next = order_.next();
  if (ahead_ != nullptr || !next || next->unit != unit->number()) return;
  if (!unit->options().overlap || unit->num_holders() != 1) return;
  unit->keep();
  ahead_ = unit;
}

/// Frees the unit that was gathered ahead in vain. Its gather must end first: the other ranks take part in
/// it.
void ReplicaUnits::drop_ahead() {
  if (ahead_ == nullptr) return;
  order_.distrust();
  std::exchange(ahead_, nullptr)->drop_ahead();
}

void ReplicaUnits::drop_kept() {
  if (const auto call = kept.lock()) call->drop();
  kept.reset();
}

void ReplicaUnits::finish_sum() {
  if (const auto sum = std::exchange(sum_, nullptr)) sum->unit->finish(*sum);
}

void ReplicaUnits::end_run() {
  drop_kept();
  drop_ahead();
  finish_sum();
  order_.begin_run();
}

/// Ranks may have come to different places, so that what they remember differs.
void ReplicaUnits::abandon_run() noexcept {
  drop_kept();
  if (const auto ahead = std::exchange(ahead_, nullptr)) ahead->abandon();
  sum_.reset();
  order_.forget();
  computing_ = std::make_shared<char>();
}

}  // namespace lockstep
