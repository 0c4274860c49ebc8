#pragma once

#include <string>
#include <vector>

#include "lockstep/apps/train_images/data/data_location.h"
#include "lockstep/apps/train_images/data/image_data.h"

namespace lockstep::apps {

/// Returns what a user should know about the images that were loaded, one line each: files that are not read,
/// and images that are all of one class. Empty if all is well.
std::vector<std::string> data_warnings(const DataLocation& location, const ImageData& data);

}  // namespace lockstep::apps
