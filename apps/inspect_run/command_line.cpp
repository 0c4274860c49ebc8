#include "lockstep/apps/inspect_run/command_line.h"

#include "lockstep/apps/shared/command_line/arguments.h"
#include "lockstep/apps/shared/command_line/flag_table.h"

namespace lockstep::apps {
namespace {

FlagTable inspect_flags() {
  return {
      .program = "inspect_run",
      .summary =
          "Summarizes a recorded run from the files in its folder: configuration, epochs, totals, "
          "checkpoints.",
      .operands = {"DIR"},
      .flags = {{"Output", "epochs", "N", "List the last N epochs",
                 std::to_string(InspectOptions{}.num_epochs)},
                {"Output", "json", "", "Print all values and all epochs as JSON"},
                {"Other", "h,help", "", "Print this help, and exit", "", FlagRole::kAction},
                {"Other", "version", "", "Print the version of Lockstep, and exit", "", FlagRole::kAction}},
      .after =
          "\nExamples:\n"
          "  inspect_run runs/a               # recorded by train_images, train_ctr or train_gpt --run-dir "
          "runs/a\n"
          "  inspect_run runs/a --epochs 100  # list up to 100 epochs\n"
          "  inspect_run runs/a --json | jq .best_epoch\n"
          "\nIt changes no files, and you may use it while the run is still training.\n"
          "\nExit codes: 0 done, 1 any other error, 2 usage, 3 a file of the run is damaged (the rest is\n"
          "summarized), 4 no run folder.\n"};
}

}  // namespace

InspectCommandLine parse_inspect_arguments(const std::vector<std::string>& arguments) {
  const Arguments given = parse_arguments(inspect_flags(), arguments);
  InspectCommandLine line;
  if (given.is_on("help")) {
    line.action = InspectCommandLine::Action::kHelp;
  } else if (given.is_on("version")) {
    line.action = InspectCommandLine::Action::kVersion;
  } else {
    line.options.folder = given.operands().front();
    line.options.num_epochs = given.integer("epochs", {.least = 1}, line.options.num_epochs);
    line.options.is_json = given.is_on("json");
  }
  return line;
}

std::string inspect_help_text(const std::string& program) {
  return help_text(inspect_flags(), program);
}

}  // namespace lockstep::apps
