#include "lockstep/apps/shared/torch_program.h"

#include <c10/util/StringUtil.h>

#include "lockstep/apps/shared/command_line/failure.h"
#include "lockstep/apps/shared/print.h"
#include "lockstep/runtime/devices/device.h"

namespace lockstep::apps {

int run_torch_program(const std::string& name, int argc, char** argv, const ProgramBody& body) {
  const auto describe = [](const std::exception_ptr& error) { return describe_failure(error); };
  return run_program({.name = name, .describe_error = describe}, argc, argv, body);
}

void print_devices() {
  for (const auto& device : list_devices()) print(device.str() + "\n");
  print(c10::str(num_gpus(), " GPUs; logical CPUs cpu:0, cpu:1, ... exist in any number\n"));
}

}  // namespace lockstep::apps
