#pragma once

#include <map>
#include <string>
#include <vector>

#include "lockstep/apps/shared/command_line/setting.h"
#include "lockstep/apps/train_ctr/ctr_options.h"
#include "lockstep/apps/train_ctr/ctr_report.h"

namespace lockstep::apps {

/// Returns every value of a run, one for each flag that is a setting or belongs to the process. A setting has
/// no value if it was not given and has no default, or if it has no meaning with the others.
std::vector<Setting> ctr_settings(const CtrOptions& options, const std::map<std::string, Origin>& origins);

/// Returns the values that were resolved on this machine: data, strategy, replicas, first step, and the
/// settings that changed when the training resumed.
std::vector<Setting> ctr_resolved_settings(const CtrFacts& facts);

/// Returns the config.json of a run; --config repeats the run with it.
std::string ctr_configuration_json(const CtrOptions& options, const CtrFacts& facts,
                                   const std::map<std::string, Origin>& origins, const std::string& version);

}  // namespace lockstep::apps
