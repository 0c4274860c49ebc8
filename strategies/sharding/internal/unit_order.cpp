#include "lockstep/strategies/sharding/internal/unit_order.h"

#include <algorithm>

namespace lockstep {

void UnitOrder::begin_run() {
  at_ = 0;
  is_in_backward_ = false;
}

void UnitOrder::move_on(const UnitUse& use) {
  const bool is_forward = use.kind == UnitUse::Kind::kForward;
  if (is_forward && is_in_backward_) begin_run();
  is_in_backward_ = !is_forward;
  at_ = follow(use);
}

/// Returns the place to which a use leads, and remembers it.
size_t UnitOrder::follow(const UnitUse& use) {
  auto& place = places_[at_];
  const auto known =
      std::find_if(place.next.begin(), place.next.end(), [&](const auto& next) { return next.first == use; });
  const auto index = static_cast<size_t>(known - place.next.begin());
  if (known != place.next.end()) {
    place.is_trusted = place.last == index;
    place.last = index;
    return known->second;
  }
  if (places_.size() == kMostPlaces) {
    places_.assign(1, {});
    return 0;
  }
  const size_t leads_to = places_.size();
  place.is_trusted = place.next.empty();
  place.last = index;
  place.next.emplace_back(use, leads_to);
  places_.emplace_back();
  return leads_to;
}

std::optional<UnitUse> UnitOrder::next() const {
  const auto& place = places_[at_];
  if (!place.is_trusted) return std::nullopt;
  return place.next[place.last].first;
}

}  // namespace lockstep
