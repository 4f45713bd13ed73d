/*
 * A library to load into a program (LD_PRELOAD), whose clock is then two days ahead. Clocks that measure durations stay right.
 */
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

int clock_gettime(clockid_t clock, struct timespec *time)
{
    int result = (int)syscall(SYS_clock_gettime, clock, time);
    if (result == 0 && clock == CLOCK_REALTIME)
        time->tv_sec += 2 * 24 * 60 * 60;
    return result;
}
