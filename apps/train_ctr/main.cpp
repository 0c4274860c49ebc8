#include <string>
#include <vector>

#include "lockstep/apps/shared/command_line/resume_command.h"
#include "lockstep/apps/shared/openmp_waits.h"
#include "lockstep/apps/shared/run_retryable.h"
#include "lockstep/apps/shared/torch_program.h"
#include "lockstep/apps/train_ctr/ctr_command_line.h"
#include "lockstep/apps/train_ctr/run_ctr_training.h"
#include "lockstep/strategies/make_strategy.h"

namespace lockstep::apps {
namespace {

int run_action(const std::string& program, const std::vector<std::string>& arguments) {
  const auto strategies = strategy_names();
  const auto line = parse_ctr_command_line(arguments, strategies);
  if (line.action != Action::kTrain)
    return answer(line.action, "train_ctr " LOCKSTEP_VERSION, ctr_help_text(strategies, program));
  return run_retryable(line.options.retryable_exit_code,
                       [&] { run_ctr_training(line, resume_command(program, arguments)); });
}

}  // namespace
}  // namespace lockstep::apps

int main(int argc, char** argv) {
  lockstep::apps::let_openmp_threads_sleep(argv);
  return lockstep::apps::run_torch_program("train_ctr", argc, argv, lockstep::apps::run_action);
}
