#pragma once

#include <cstdint>
#include <stdexcept>
#include <string>

namespace lockstep {

/// Thrown if a loss, or a number in the training's state, is NaN or infinite. The message names the epoch,
/// the step, the replica, and its device or the tensor.
///
/// Example:
///
///     try {
///       trainer.fit(batches, {.callbacks = {std::make_shared<NanGuard>()}});
///     } catch (const NotFinite& error) {
///       std::cerr << error.what() << ": replica " << error.place().replica << std::endl;
///     }
class NotFinite : public std::runtime_error {
 public:
  struct Place {
    int64_t epoch = 0;
    int64_t step = 0;  ///< Step within the epoch, counted from 1.
    int64_t replica = 0;
    std::string device{};  ///< Set for a loss.
    std::string tensor{};  ///< Such as `parameter dense.weight`; empty for a loss.
  };

  explicit NotFinite(Place place);
  const Place& place() const { return place_; }

 private:
  Place place_;
};

/// Action after a step that makes a loss, a parameter or an optimizer's state NaN or infinite.
enum class NotFiniteAction {
  kStop,      ///< Ends the fit with NotFinite.
  kSkip,      ///< Checks after every step and undoes a bad one.
  kRollBack,  ///< Undoes all steps since the last check that found everything finite.
};

}  // namespace lockstep
