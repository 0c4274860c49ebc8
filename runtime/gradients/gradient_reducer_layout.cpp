// How parameters are packed into buckets, and when the layout changes.
#include <utility>

#include "lockstep/runtime/gradients/gradient_reducer.h"
#include "lockstep/runtime/gradients/pending_gradient.h"

namespace lockstep {

void GradientReducer::make_pending() {
  pending_.assign(parameters_.size(), {});
  sharded_.assign(parameters_.size(), {});
  for (size_t i = 0; i < parameters_.size(); ++i) {
    if (!buckets_.has_slot(i)) continue;
    pending_[i] = pending_gradient(parameters_[i], options_.name_of(i));
    if (!is_in_parts(i)) continue;
    sharded_[i] =
        pending_gradient(parameters_[i], options_.name_of(i),
                         options_.sharding->stage > 1 ? PendingReason::kOnlyParts : PendingReason::kShards);
  }
}

void GradientReducer::lay_out() {
  ++statistics_.rebuilds;
  if (options_.sharding) {
    lay_out_parts();
  } else {
    hooks_.reset();
    std::vector<size_t> with_slots;
    for (const size_t i : order_.current()) {
      is_outside_[i] = parameters_[i].requires_grad() && seen_[i] == GradientKind::kSparse ? 1 : 0;
      if (!is_outside(i)) with_slots.push_back(i);
    }
    buckets_.lay_out(parameters_, with_slots, options_.buckets, options_.slot_alignment, channel_.wire_dtype);
  }
  begin_layout();
  hooks_.emplace(parameters_, [this](size_t index) { on_gradient(index); });
}

void GradientReducer::begin_layout() {
  settling_steps_ = options_.settling_steps;
  all_reduce_.begin_step();
  make_pending();
}

/// Makes the layout that the replicas have agreed on. It may be called by a hook, so it keeps the hooks; and
/// it leaves changes of the parameters to prepare(), since replicas may see them at different times.
void GradientReducer::rearrange() {
  if (is_captured_ || is_recording() || buckets_.find_changed(parameters_)) return;
  ++statistics_.rebuilds;
  is_rearranged_ = true;
  if (order_.has_next()) order_.take_next();
  std::vector<size_t> with_slots;
  for (const size_t i : order_.current()) {
    if (!is_summed(i)) continue;
    is_outside_[i] = seen_[i] == GradientKind::kSparse ? 1 : 0;
    if (!is_outside(i)) with_slots.push_back(i);
  }
  buckets_.rearrange(parameters_, with_slots);
  begin_layout();
}

bool GradientReducer::is_laid_out() const {
  return hooks_ && buckets_.fit(parameters_) && hooks_->are_in_place(parameters_);
}

void GradientReducer::expect_kinds() {
  seen_.assign(parameters_.size(), GradientKind::kNone);
  for (const size_t i : options_.sparse) seen_[i] = GradientKind::kSparse;
}

/// Learns from the agreed kinds, which are the same on all replicas, so that all make the same layout.
void GradientReducer::note_kinds() {
  const auto& kinds = all_reduce_.kinds();
  for (size_t i = 0; i < parameters_.size(); ++i) {
    // A gradient that is dense in some steps only would otherwise cost a layout each time.
    if (!is_summed(i) || kinds[i] == GradientKind::kNone || seen_[i] == GradientKind::kDense) continue;
    seen_[i] = kinds[i];
  }
}

/// Whether exactly those parameters are outside the buckets whose gradients are expected to be sparse.
bool GradientReducer::fits_kinds() const {
  for (size_t i = 0; i < parameters_.size(); ++i)
    if (is_summed(i) && is_outside(i) != (seen_[i] == GradientKind::kSparse)) return false;
  return true;
}

void GradientReducer::set_agreed_kinds(const std::vector<GradientKind>& kinds) {
  if (options_.sharding) return;
  for (size_t i = 0; i < kinds.size(); ++i)
    if (kinds[i] != GradientKind::kNone) seen_[i] = kinds[i];
}

void GradientReducer::describe(Fingerprint& fingerprint) const {
  fingerprint.add(statistics_.rebuilds);
  fingerprint.add(static_cast<uint8_t>(phase_));
  // A backward of an earlier run has left work that no capture can wait for. A layout's first steps may
  // allocate memory, so a call comes before the captured one.
  if (phase_ == Phase::kCollecting || is_rearranged_ || is_outdated() || !is_laid_out())
    fingerprint.add_unsettled();
}

void GradientReducer::prepare() {
  is_rearranged_ = false;
  const bool current = is_laid_out();
  if (phase_ == Phase::kCollecting) {
    if (current) return;  // an earlier run's backward, whose sums are still awaited
    drop_gradients();
    drain();
  }
  if (current && !is_outdated()) return;
  if (order_.has_next()) order_.take_next();
  lay_out();
}

}  // namespace lockstep
