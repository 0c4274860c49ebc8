#include "lockstep/apps/shared/stopped.h"

#include <csignal>

namespace lockstep::apps {

std::string signal_name(int signal) {
  return signal == SIGINT ? "SIGINT" : "SIGTERM";
}

std::string stopped_text(int signal) {
  return "stopped by " + signal_name(signal);
}

std::string saved_text(const std::string& folder, const std::string& command) {
  return "saved in " + folder + "; to resume, run: " + command;
}

}  // namespace lockstep::apps
