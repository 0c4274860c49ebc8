#pragma once

#include <map>
#include <memory>
#include <string>

#include "lockstep/apps/shared/command_line/origin.h"
#include "lockstep/apps/train_mnist/data/image_data.h"
#include "lockstep/apps/train_mnist/options/configuration.h"
#include "lockstep/training/callbacks/record_run.h"

namespace lockstep::apps {

/// What records a run in `paths`: its title, configuration and classes are the run's.
std::shared_ptr<RecordRun> make_record(const RunPaths& paths, const ResolvedRun& run,
                                       const std::map<std::string, Origin>& origins, const ImageData& data);

}  // namespace lockstep::apps
