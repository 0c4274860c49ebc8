#pragma once

#include <chrono>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "lockstep/apps/shared/command_line/origin.h"
#include "lockstep/apps/train_images/data/image_data.h"
#include "lockstep/apps/train_images/options/configuration.h"
#include "lockstep/training/callbacks/record_run.h"

namespace lockstep::apps {

/// Creates the recorder of a run in `paths`, with the run's title, configuration, classes and `hosts`; the
/// program began at `began`. Lists the images that were left out in a file of their own, if there are any.
std::shared_ptr<RecordRun> make_record(const RunPaths& paths, const ResolvedRun& run,
                                       const std::map<std::string, Origin>& origins, const ImageData& data,
                                       const std::vector<std::string>& hosts,
                                       std::chrono::steady_clock::time_point began);

}  // namespace lockstep::apps
