#pragma once

#include <string>
#include <vector>

#include "lockstep/apps/train_images/data/data_location.h"
#include "lockstep/apps/train_images/data/image_data.h"

namespace lockstep::apps {

/// Returns what a user should know about the images that were loaded, one line each: files beside them that
/// are not read. Empty if all is well.
std::vector<std::string> data_warnings(const DataLocation& location, const ImageData& data);

}  // namespace lockstep::apps
