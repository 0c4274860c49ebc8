// The harness itself: this offence is refused, and for this reason.
namespace {

void take(int) {}
void take(double) = delete;

}  // namespace

void call() {
  take(1);
#ifdef LOCKSTEP_MUST_NOT_COMPILE
  take(1.0);
#endif
}
