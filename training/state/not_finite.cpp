#include "lockstep/training/state/not_finite.h"

#include <c10/util/StringUtil.h>

#include <utility>

namespace lockstep {
namespace {

std::string message_of(const NotFinite::Place& place) {
  const auto when = c10::str("epoch ", place.epoch, ", step ", place.step, ", replica ", place.replica);
  if (place.tensor.empty())
    return c10::str("[fit] expected finite losses, but in ", when, " (", place.device,
                    ") has one that is not");
  return c10::str("[fit] expected a finite state, but after ", when, " has NaN or infinity in ",
                  place.tensor);
}

}  // namespace

NotFinite::NotFinite(Place place) : std::runtime_error(message_of(place)), place_(std::move(place)) {}

}  // namespace lockstep
