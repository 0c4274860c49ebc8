#include <string>
#include <vector>

#include "lockstep/apps/shared/command_line/resume_command.h"
#include "lockstep/apps/shared/openmp_waits.h"
#include "lockstep/apps/shared/run_retryable.h"
#include "lockstep/apps/shared/strategy_choice/strategy_flags.h"
#include "lockstep/apps/shared/torch_program.h"
#include "lockstep/apps/train_gpt/options/gpt_command_line.h"
#include "lockstep/apps/train_gpt/options/gpt_flags.h"
#include "lockstep/apps/train_gpt/run_gpt_training.h"
#include "lockstep/strategies/make_strategy.h"

namespace lockstep::apps {
namespace {

int run_action(const std::string& program, const std::vector<std::string>& arguments) {
  const auto strategies = strategies_of_trainer(strategy_names());
  const auto line = parse_gpt_command_line(arguments, strategies);
  if (line.action != Action::kTrain)
    return answer(line.action, "train_gpt " LOCKSTEP_VERSION, gpt_help_text(strategies, program));
  return run_retryable(line.options.retryable_exit_code,
                       [&] { run_gpt_training(line, resume_command(program, arguments)); });
}

}  // namespace
}  // namespace lockstep::apps

int main(int argc, char** argv) {
  lockstep::apps::let_openmp_threads_sleep(argv);
  return lockstep::apps::run_torch_program("train_gpt", argc, argv, lockstep::apps::run_action);
}
