#pragma once

#include <string>
#include <vector>

#include "lockstep/apps/train_images/data/data_location.h"
#include "lockstep/apps/train_images/data/image_data.h"

namespace lockstep::apps {

/// Returns warnings about the images that were loaded, one line each: files in their folder that are not
/// read. Empty if there are none.
std::vector<std::string> data_warnings(const DataLocation& location, const ImageData& data);

}  // namespace lockstep::apps
