#pragma once

#include <cstdint>

#include "lockstep/apps/train_images/options/train_options.h"
#include "lockstep/models/mobilenet_v2.h"
#include "lockstep/models/simple_cnn.h"

namespace lockstep::apps {

/// Return the options of the chosen model for `num_classes` classes.
SimpleCnnOptions simple_cnn_options(const TrainOptions& options, int64_t num_classes);
MobileNetV2Options mobilenet_v2_options(const TrainOptions& options, int64_t num_classes);

}  // namespace lockstep::apps
