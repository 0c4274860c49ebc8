#include "lockstep/runtime/devices/internal/error_text.h"

#include <c10/util/Exception.h>

namespace lockstep {

std::string error_line(const std::exception_ptr& error) {
  std::string text;
  try {
    std::rethrow_exception(error);
  } catch (const c10::Error& caught) {
    text = caught.what_without_backtrace();
  } catch (const std::exception& caught) {
    text = caught.what();
  } catch (...) {
    text = "an exception that is no std::exception";
  }
  return text.substr(0, text.find('\n'));
}

}  // namespace lockstep
