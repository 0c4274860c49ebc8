#include "lockstep/apps/train_images/options/command_line.h"

#include "lockstep/apps/shared/command_line/arguments.h"
#include "lockstep/apps/shared/session/run_flags.h"
#include "lockstep/apps/shared/strategy_choice/strategy_flags.h"
#include "lockstep/apps/train_images/options/flags.h"
#include "lockstep/apps/train_images/options/read_options.h"

namespace lockstep::apps {

CommandLine parse_command_line(const std::vector<std::string>& arguments,
                               const std::vector<std::string>& strategies) {
  const FlagTable table = train_flags(strategies);
  Arguments given = parse_arguments(table, arguments);
  CommandLine line{.action = requested_action(given)};
  if (line.action != Action::kTrain) return line;
  complete_arguments(given, table);
  read_strategy(given, strategies, line.options);
  read_data(given, line.options);
  read_model(given, line.options);
  read_augment(given, line.options);
  read_training(given, line.options);
  read_run(given, line.options);
  read_learning_rate_finder(given, line.options);
  line.origins = given.origins();
  if (line.options.fast_dev_run) shorten(line.options);
  return line;
}

}  // namespace lockstep::apps
