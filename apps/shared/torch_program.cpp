#include "lockstep/apps/shared/torch_program.h"

#include <c10/util/StringUtil.h>
#include <torch/version.h>

#include "lockstep/apps/shared/command_line/failure.h"
#include "lockstep/apps/shared/device_plugin.h"
#include "lockstep/apps/shared/print.h"
#include "lockstep/runtime/devices/device.h"

namespace lockstep::apps {

int run_torch_program(const std::string& name, int argc, char** argv, const ProgramBody& body) {
  const auto describe = [](const std::exception_ptr& error) { return describe_failure(error); };
  return exit_code_with_device_plugin(
      run_program({.name = name, .describe_error = describe}, argc, argv, body));
}

namespace {

void print_devices() {
  for (const auto& device : list_devices()) print(device.str() + "\n");
  const auto type = accelerator().value_or(c10::DeviceType::CUDA);
  print(c10::str(num_devices(type), " ", device_type_noun(type),
                 "s; logical CPUs cpu:0, cpu:1, ... exist in any number\n"));
}

}  // namespace

int answer(Action action, const std::string& version, const std::string& help) {
  switch (action) {
    case Action::kHelp:
      print(help);
      break;
    case Action::kVersion:
      print(version + ", LibTorch " TORCH_VERSION "\n");
      break;
    case Action::kListDevices:
      load_device_plugin(process_environment());
      print_devices();
      break;
    case Action::kTrain:
      break;
  }
  return 0;
}

}  // namespace lockstep::apps
