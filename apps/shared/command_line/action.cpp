#include "lockstep/apps/shared/command_line/action.h"

#include "lockstep/apps/shared/command_line/configuration_file.h"

namespace lockstep::apps {

Action requested_action(const Arguments& given) {
  if (given.is_on("help")) return Action::kHelp;
  if (given.is_on("version")) return Action::kVersion;
  return given.is_on("list-devices") ? Action::kListDevices : Action::kTrain;
}

void complete_arguments(Arguments& given, const FlagTable& table) {
  if (given.has("config")) given.add(read_configuration_file(given.text("config"), table), table);
  given.check_alternatives(table);
  given.check_needs(table);
}

}  // namespace lockstep::apps
