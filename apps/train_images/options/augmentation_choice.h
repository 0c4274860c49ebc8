#pragma once

#include <cstdint>
#include <string>

#include "lockstep/apps/shared/command_line/arguments.h"

namespace lockstep::apps {

/// Random changes of training images, as --augment takes them. 0 or false leaves images as they are;
/// ImageAugmentation and Mixup say more.
struct AugmentationChoice {
  int64_t crop = 0;  ///< pixels of padding
  bool flip = false;
  double rotate = 0;  ///< degrees
  double brightness = 0;
  double contrast = 0;
  double saturation = 0;
  double hue = 0;    ///< part of the circle
  double mixup = 0;  ///< alpha

  bool operator==(const AugmentationChoice&) const = default;
};

/// Reads --augment, such as `crop=4,flip`. Without it, returns a choice of no changes. Throws UsageError
/// naming the flag, the change, its expected and the given value.
AugmentationChoice read_augmentation(const Arguments& given);

/// Returns the choice as --augment takes it; `none` if there are no changes.
std::string augmentation_text(const AugmentationChoice& choice);

}  // namespace lockstep::apps
