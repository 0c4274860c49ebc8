#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "lockstep/apps/shared/command_line/origin.h"
#include "lockstep/apps/shared/command_line/setting.h"
#include "lockstep/apps/train_gpt/options/gpt_plan.h"
#include "lockstep/apps/train_gpt/options/gpt_train_options.h"

namespace lockstep::apps {

/// Values that were resolved from the options, for the log and the record.
struct GptFacts {
  GptTrainOptions options;
  GptPlan plan;
  std::string model;      ///< its name, such as small
  std::string data;       ///< which data
  int64_t num_train = 0;  ///< sequences
  int64_t num_test = 0;
  std::string strategy;  ///< its name, and why it was chosen
  std::string replicas;  ///< how the strategy runs
  int num_replicas = 1;
  int threads = 0;  ///< threads per replica
  double peak_flops = 0;
  std::string peak_source;
  std::optional<double> entropy;  ///< the lowest possible expected loss, as Baselines
  std::optional<double> best_loss;
  std::optional<double> bigram_loss;
  std::optional<double> five_gram_loss;
  std::vector<std::string> changed_settings;  ///< since the checkpoint that this process resumes from
};

/// Returns every value of the run, one per line, ending with a newline.
std::string gpt_configuration_text(const GptFacts& facts);

/// Returns every value of a run, one for each flag that is a setting or belongs to the process. A setting has
/// no value if it was not given and has no default, or if it has no meaning with the others.
std::vector<Setting> gpt_settings(const GptTrainOptions& options,
                                  const std::map<std::string, Origin>& origins);

/// Returns the values that were resolved on this machine.
std::vector<Setting> gpt_resolved_settings(const GptFacts& facts);

/// Returns the config.json of a run; --config repeats the run with it.
std::string gpt_configuration_json(const GptFacts& facts, const std::map<std::string, Origin>& origins,
                                   const std::string& version);

}  // namespace lockstep::apps
