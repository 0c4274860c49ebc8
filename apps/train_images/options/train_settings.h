#pragma once

#include <map>
#include <string>
#include <vector>

#include "lockstep/apps/shared/command_line/setting.h"
#include "lockstep/apps/train_images/options/configuration.h"
#include "lockstep/apps/train_images/options/train_options.h"

namespace lockstep::apps {

/// Returns every value of a run, one for each flag that is a setting or belongs to the process. A setting has
/// no value if it was not given and has no default, or if it has no meaning with the others, such as momentum
/// without sgd.
std::vector<Setting> settings_of(const TrainOptions& options, const std::map<std::string, Origin>& origins);

/// Returns the values that were resolved on this machine: strategy, replicas, images, steps, initial learning
/// rate, settings that changed when it resumed, and whether output is coloured, which NO_COLOR decides if it
/// is set.
std::vector<Setting> resolved_settings(const ResolvedRun& run);

/// Returns the config.json of a run; --config repeats the run with it.
std::string run_configuration(const ResolvedRun& run, const std::map<std::string, Origin>& origins,
                              const std::string& version);

}  // namespace lockstep::apps
