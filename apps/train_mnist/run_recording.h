#pragma once

#include <map>
#include <memory>
#include <string>

#include "lockstep/apps/command_line/origin.h"
#include "lockstep/apps/train_mnist/configuration.h"
#include "lockstep/apps/train_mnist/image_data.h"
#include "lockstep/training/record_run.h"

namespace lockstep::apps {

/// What records a run in `paths`: its title, configuration and classes are the run's.
std::shared_ptr<RecordRun> make_record(const RunPaths& paths, const ResolvedRun& run,
                                       const std::map<std::string, Origin>& origins, const ImageData& data);

}  // namespace lockstep::apps
