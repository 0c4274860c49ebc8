#include "lockstep/apps/shared/program.h"

#include <csignal>

#include "lockstep/apps/shared/exit_code.h"
#include "lockstep/apps/shared/print.h"
#include "lockstep/apps/shared/stopped.h"

namespace lockstep::apps {
namespace {

int end_by(const ProgramOptions& program, const Failure& failure) {
  log_line(program.name, "error: " + failure.message);
  return failure.exit_code;
}

}  // namespace

int run_program(const ProgramOptions& program, int argc, char** argv, const ProgramBody& body) {
  try {
    return body(argv[0], {argv + 1, argv + argc});
  } catch (const Stopped& stopped) {
    return static_cast<int>(stopped.signal == SIGINT ? ExitCode::kInterrupted : ExitCode::kTerminated);
  } catch (const Failure& failure) {
    return end_by(program, failure);
  } catch (...) {
    return end_by(program, program.describe_error(std::current_exception()));
  }
}

}  // namespace lockstep::apps
