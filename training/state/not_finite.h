#pragma once

#include <cstdint>
#include <stdexcept>
#include <string>

namespace lockstep {

/// A loss, or a number in the training's state, is NaN or infinite. The message names epoch, step, replica
/// and its device, or the tensor.
class NotFinite : public std::runtime_error {
 public:
  struct Place {
    int64_t epoch = 0;
    int64_t step = 0;  ///< of the epoch, from 1
    int64_t replica = 0;
    std::string device{};  ///< of a loss
    std::string tensor{};  ///< such as `parameter dense.weight`; empty: it is a loss
  };

  explicit NotFinite(Place place);
  const Place& place() const { return place_; }

 private:
  Place place_;
};

/// What comes of a step that makes a loss, a parameter or an optimizer's state NaN or infinite.
enum class NotFiniteAction {
  kStop,      ///< the fit ends by NotFinite
  kSkip,      ///< each step is looked at, and undone where it was such a one
  kRollBack,  ///< all steps since the last look at which everything was finite are undone
};

}  // namespace lockstep
