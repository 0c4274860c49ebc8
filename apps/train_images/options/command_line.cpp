#include "lockstep/apps/train_images/options/command_line.h"

#include "lockstep/apps/shared/command_line/arguments.h"
#include "lockstep/apps/shared/strategy_choice/strategy_flags.h"
#include "lockstep/apps/train_images/options/flags.h"
#include "lockstep/apps/train_images/options/read_options.h"

namespace lockstep::apps {

CommandLine parse_command_line(const std::vector<std::string>& arguments,
                               const std::vector<std::string>& strategies) {
  const FlagTable table = train_flags(strategies);
  Arguments given = parse_arguments(table, arguments);
  CommandLine line;
  if (given.is_on("help")) {
    line.action = Action::kHelp;
  } else if (given.is_on("version")) {
    line.action = Action::kVersion;
  } else if (given.is_on("list-devices")) {
    line.action = Action::kListDevices;
  } else {
    if (given.has("config")) given.add(read_configuration_file(given.text("config"), table), table);
    given.check_alternatives(table);
    given.check_needs(table);
    read_strategy(given, strategies, line.options);
    read_data(given, line.options);
    read_model(given, line.options);
    read_training(given, line.options);
    read_record(given, line.options);
    read_backup(given, line.options);
    line.origins = given.origins();
    if (line.options.fast_dev_run) shorten(line.options);
  }
  return line;
}

}  // namespace lockstep::apps
