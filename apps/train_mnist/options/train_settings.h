#pragma once

#include <map>
#include <string>
#include <vector>

#include "lockstep/apps/shared/command_line/setting.h"
#include "lockstep/apps/train_mnist/options/configuration.h"
#include "lockstep/apps/train_mnist/options/train_options.h"

namespace lockstep::apps {

/// Every value of a run, one for each flag that is a setting or belongs to the process. A value that was not
/// given and has no default, or that means nothing beside the others, such as momentum without sgd, has none.
std::vector<Setting> settings_of(const TrainOptions& options, const std::map<std::string, Origin>& origins);

/// What came of them on this machine: strategy, replicas, images, steps, the first learning rate, and whether
/// output is coloured, which NO_COLOR decides where it is set.
std::vector<Setting> resolved_settings(const ResolvedRun& run);

/// The config.json of a run, with which --config repeats it.
std::string run_configuration(const ResolvedRun& run, const std::map<std::string, Origin>& origins,
                              const std::string& version);

}  // namespace lockstep::apps
